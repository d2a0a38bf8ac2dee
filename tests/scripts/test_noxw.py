"""`noxw`: a python3 is all it needs, and an interrupted first run is never taken for a finished one.

A stand-in python answers as CPython would, makes "virtual environments" of itself, and logs what it is asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.layout import PROJECT_ROOT

PYTHON = """#!/bin/sh
echo "$0 $*" >> "{log}"
case "$*" in
*platform.python_version*) echo {version} ;;
*sys.version_info*'< (3, 11)'*) exit {too_old} ;;
*ensurepip*) exit {no_venv} ;;
*hashlib*) exec "{real}" "$@" ;;
*os.rename*) exec "{real}" "$@" ;;
'-m venv '*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
'-m pip '*) {pip} ;;
*noxrun.py*) echo "PATH=$PATH"; shift 2; printf '%s\\n' "$@" ;;
esac
"""


@dataclass
class Checkout:
    """A checkout with nothing in it but what noxw reads, and the commands that a machine has."""

    root: Path
    programs: Path
    log: Path

    def python(
        self,
        version: str = "3.11.7",
        *,
        too_old: bool = False,
        no_venv: bool = False,
        pip: str = ":",
        name: str = "python3",
    ) -> None:
        """Put a stand-in python on the machine."""
        text = PYTHON.format(
            log=self.log, version=version, too_old=int(too_old), no_venv=int(no_venv), pip=pip, real=sys.executable
        )
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def run(self, *arguments: str, cwd: Path | None = None, **added: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.programs), **added}
        return subprocess.run(
            [str(self.root / "noxw"), *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False
        )

    def asked(self, what: str) -> int:
        """How often a python was asked for something."""
        return sum(what in line for line in self.log.read_text().splitlines())

    @property
    def tools(self) -> list[str]:
        return sorted(path.name for path in (self.root / ".tool").glob("*"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "a check out"
    lock = root / "scripts" / "requirements" / "bootstrap.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("nox==1\n")
    shutil.copy(PROJECT_ROOT / "noxw", root)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "cat", "cmp", "cp", "dirname", "mkdir", "mv", "printf", "rm", "tr"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    return Checkout(root, programs, tmp_path / "asked")


def test_nox_runs_with_the_same_arguments_from_any_folder(checkout: Checkout, tmp_path: Path) -> None:
    checkout.python()
    finished = checkout.run("-s", "lint", "test", "--", "--steps", "two words", cwd=tmp_path)
    path, *arguments = finished.stdout.splitlines()
    noxfile = str(checkout.root / "noxfile.py")
    assert arguments == ["--noxfile", noxfile, "-s", "lint", "test", "--", "--steps", "two words"]
    assert path.startswith(f"PATH={checkout.root}/.tool/py")
    assert finished.returncode == 0


def test_the_tool_environment_is_installed_by_hash_and_only_once(checkout: Checkout) -> None:
    checkout.python()
    first, second = checkout.run(), checkout.run()
    assert "making the tool environment" in first.stderr
    assert second.stderr == ""
    assert checkout.asked("-m pip install") == 1
    assert checkout.asked("--require-hashes") == 1


def test_another_lock_makes_another_environment_in_the_place_of_the_former(checkout: Checkout) -> None:
    checkout.python()
    checkout.run()
    (former,) = checkout.tools
    (checkout.root / "scripts" / "requirements" / "bootstrap.lock").write_text("nox==2\n")
    checkout.run()
    (current,) = checkout.tools
    assert current != former
    assert checkout.asked("-m pip install") == 2


def test_a_former_environment_stays_while_somebody_runs_from_it(checkout: Checkout) -> None:
    checkout.python()
    checkout.run()
    (former,) = checkout.tools
    program = checkout.root / ".tool" / former / "bin" / "python"
    with subprocess.Popen(["sh", "-c", "read line", program], stdin=subprocess.PIPE) as user:
        (checkout.root / "scripts" / "requirements" / "bootstrap.lock").write_text("nox==2\n")
        checkout.run()
        assert len(checkout.tools) == 2
        user.kill()
    (checkout.root / "scripts" / "requirements" / "bootstrap.lock").write_text("nox==3\n")
    checkout.run()
    assert len(checkout.tools) == 1


def test_an_environment_whose_python_no_longer_runs_is_made_again(checkout: Checkout) -> None:
    checkout.python()
    checkout.run()
    (checkout.root / ".tool" / checkout.tools[0] / "bin" / "python").unlink()
    finished = checkout.run("-s", "smoke")
    assert finished.returncode == 0
    assert finished.stdout.splitlines()[-1] == "smoke"


def test_a_checkout_that_was_moved_goes_on(checkout: Checkout) -> None:
    checkout.python()
    checkout.run()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.run().returncode == 0
    assert checkout.asked("-m pip install") == 1


def test_a_failed_install_is_not_taken_for_a_finished_one(checkout: Checkout) -> None:
    checkout.python(pip="exit 1")
    failed = checkout.run()
    assert failed.returncode == 10
    assert "could not be filled" in failed.stderr
    assert checkout.tools == []
    checkout.python()
    assert checkout.run().returncode == 0


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_an_interrupted_install_leaves_nothing(checkout: Checkout, signal: str) -> None:
    checkout.python(pip=f"kill -{signal} $PPID")
    interrupted = checkout.run()
    assert interrupted.returncode == 130
    assert checkout.tools == []


def test_what_a_killed_first_run_left_is_not_used_and_is_removed(checkout: Checkout) -> None:
    checkout.python(pip="kill -KILL $PPID")
    assert checkout.run().returncode == -9
    (left,) = checkout.tools
    assert left.startswith("partial-")
    checkout.python()
    assert checkout.run().returncode == 0
    assert [name.startswith("py3.11-") for name in checkout.tools] == [True]


def test_two_first_runs_at_the_same_time_both_work(checkout: Checkout) -> None:
    other = checkout.programs.parent / "other"
    # While the first one installs, a whole second one comes and goes.
    checkout.python(name="python3.12")
    inner = f'SMOKESTACK_PYTHON=python3.12 "{checkout.root}/noxw" > "{other}" 2>&1'
    checkout.python(pip=f'test -e "{other}" || {inner}')
    finished = checkout.run("-s", "smoke")
    assert (finished.returncode, finished.stdout.splitlines()[-1]) == (0, "smoke")
    assert "--noxfile" in other.read_text()
    assert len(checkout.tools) == 1


def test_a_python_that_is_too_old_is_named_with_its_version(checkout: Checkout) -> None:
    checkout.python("3.9.2", too_old=True)
    finished = checkout.run()
    assert finished.returncode == 10
    assert "expected: python3 3.11 or newer" in finished.stderr
    assert "found:     python3 is 3.9.2;" in finished.stderr
    assert "fix:" in finished.stderr


def test_no_python_at_all_is_said(checkout: Checkout) -> None:
    assert "found:     no python3 at all" in checkout.run().stderr


def test_a_newer_python_beside_an_old_one_is_found(checkout: Checkout) -> None:
    checkout.python("3.9.2", too_old=True)
    checkout.python("3.12.1", name="python3.12")
    finished = checkout.run()
    assert finished.returncode == 0
    assert "with python3.12 3.12.1" in finished.stderr


def test_a_python_that_cannot_make_environments_is_told_which_package_is_missing(checkout: Checkout) -> None:
    checkout.python(no_venv=True)
    finished = checkout.run()
    assert finished.returncode == 10
    assert "found:    a Python without them" in finished.stderr
    assert "apt-get install python3-venv   # or python3.11-venv" in finished.stderr
    assert checkout.tools == []


def test_an_incomplete_checkout_is_said(checkout: Checkout) -> None:
    checkout.python()
    (checkout.root / "scripts" / "requirements" / "bootstrap.lock").unlink()
    finished = checkout.run()
    assert finished.returncode == 10
    assert "bootstrap.lock is missing" in finished.stderr


def test_uvs_wheelhouse_and_index_reach_pip(checkout: Checkout) -> None:
    checkout.python(pip=f'echo "links=$PIP_FIND_LINKS index=$PIP_INDEX_URL" >> "{checkout.log}"')
    checkout.run(UV_FIND_LINKS="/a,/b", UV_DEFAULT_INDEX="https://index.example")
    assert checkout.asked("links=/a /b index=https://index.example") == 1


def test_the_real_one_passes_a_posix_shells_own_check() -> None:
    subprocess.run(["sh", "-n", str(PROJECT_ROOT / "noxw")], check=True)
    assert os.access(PROJECT_ROOT / "noxw", os.X_OK)


@pytest.mark.parametrize(
    ("told", "ended", "status"), [("10", 1, 10), (None, 1, 1), ("10", 0, 0), ("10", 3, 3), ("20", 130, 130)]
)
def test_the_status_is_that_of_the_first_command_that_failed(
    tmp_path: Path, told: str | None, ended: int, status: int
) -> None:
    (tmp_path / "nox").mkdir()
    (tmp_path / "nox" / "__init__.py").touch()
    leave = "" if told is None else f"os.environ.setdefault('SMOKESTACK_STATUS', '{told}')\n    "
    (tmp_path / "nox" / "__main__.py").write_text(f"import os, sys\ndef main():\n    {leave}sys.exit({ended})\n")
    finished = subprocess.run(
        [sys.executable, "-P", str(PROJECT_ROOT / "scripts" / "noxrun.py")],
        env={"PYTHONPATH": str(tmp_path), "SMOKESTACK_STATUS": "99"},
        check=False,
    )
    assert finished.returncode == status
