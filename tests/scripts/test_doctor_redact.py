"""What the doctor hides of a machine: passwords, and where a person's home is."""

from __future__ import annotations

import subprocess

import pytest

from scripts.doctor import redact


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:s3@cret@host/simple", "https://***@host/simple"),
        ("https://me:s3/cret@host/simple", "https://***@host/simple"),
        ("bob:hu@sh@proxy:3128", "***@proxy:3128"),
        ("https://a:b@one,https://c:d@two", "https://***@one,https://***@two"),
        ("https://host/simple?auth=abc&credential=x", "https://host/simple?auth=***&credential=***"),
        ("https://host:8080/@scope/package", "https://host:8080/@scope/package"),
    ],
)
def test_a_password_is_hidden_whatever_is_in_it(address: str, shown: str) -> None:
    assert redact.text(address, "/home/me") == shown


def test_a_command_with_the_home_hidden_still_names_the_same_files() -> None:
    typed = redact.command("printf '%s\\n' '/home/me/a b' /home/me/c \"/home/me/d\"", "/home/me")
    done = subprocess.run(["sh", "-c", typed], env={"HOME": "/home/me"}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["/home/me/a b", "/home/me/c", "/home/me/d"]


@pytest.mark.parametrize("home", ["/", ""])
def test_a_home_that_is_no_folder_of_its_own_hides_nothing(home: str) -> None:
    assert redact.text("/usr/bin and /", home) == "/usr/bin and /"
