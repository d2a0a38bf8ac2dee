"""The git program: a clean environment, and errors that name the likely cause; real git against a loopback server."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import upstream

from scripts.console import Console
from scripts.errors import BuildError
from scripts.gitsource import obtain, submodules
from scripts.gitsource.failures import likely_cause
from scripts.gitsource.git import environment
from scripts.gitsource.submodules import Recorded
from scripts.layout import Layout
from scripts.stackfile import GitSource

REVISION = "1" * 40


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the address names."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("WWW-Authenticate", 'Basic realm="test"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


def refused(layout: Layout, console: Console, repository: str) -> BuildError:
    source = GitSource.model_construct(repository=repository, revision=REVISION, version="1", nested={})
    with pytest.raises(BuildError) as caught:
        obtain(layout, "vllm", source, console)
    assert upstream.in_the_cache(layout) == []
    assert caught.value.where == repository
    assert caught.value.log is not None
    assert repository in caught.value.log.read_text()
    return caught.value


def test_a_server_that_asks_for_a_password_is_not_waited_for(layout: Layout, console: Console, server: str) -> None:
    error = refused(layout, console, f"{server}/401/vllm")
    assert "the server wants to know who asks, or there is no such repository" in error.what
    assert "terminal prompts disabled" in (error.found or ""), "git's own words"
    assert (error.hint or "").startswith(f"git ls-remote {server}/401/vllm")


def test_an_address_without_a_repository_is_said(layout: Layout, console: Console, server: str) -> None:
    assert "there is no such repository" in refused(layout, console, f"{server}/404/vllm").what


def test_a_server_that_does_not_answer_is_said(layout: Layout, console: Console) -> None:
    # A port that was free a moment ago, and that nobody else is given while its socket waits to be listened on.
    with http.server.HTTPServer(("127.0.0.1", 0), _Refusing, bind_and_activate=False) as bound:
        bound.server_bind()
        error = refused(layout, console, f"http://127.0.0.1:{bound.server_address[1]}/vllm")
    assert "the server cannot be reached, or the line broke" in error.what


def test_a_key_that_the_server_does_not_take_is_said(
    layout: Layout, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text(
        "#!/bin/sh\necho 'git@example.invalid: Permission denied (publickey).' >&2\nexit 255\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(tmp_path / "ssh"))
    assert "wants to know who asks" in refused(layout, console, "ssh://git@example.invalid/vllm").what


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("fatal: unable to write loose object file: No space left on device", "the disk is full"),
        ("fatal: remote error: upload-pack: not our ref 11", "the repository has no such revision"),
        ("error: Server does not allow request for unadvertised object 11", "the server gives out only the heads"),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", "no host of that name can be found"),
        ("fatal: unable to access 'https://x/': Could not resolve proxy: x", "no host of that name can be found"),
        ("fatal: unable to access 'https://x/': SSL certificate problem: expired", "certificate is not trusted"),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", "host key is not known here"),
        ("fatal: transport 'file' not allowed", "git is configured not to use this kind of address"),
        ("remote: Repository not found.\nfatal: repository 'https://x/' not found", "wants to know who asks, or there"),
    ],
)
def test_gits_words_are_turned_into_the_likely_cause(output: str, what: str) -> None:
    cause = likely_cause(output, "https://example.invalid/x y")
    assert cause is not None
    assert what in cause.what
    assert "{subject}" not in (cause.hint or "")
    assert "x y" not in (cause.hint or "").replace("'https://example.invalid/x y'", ""), "quoted for a shell"


def test_words_that_are_not_known_are_given_no_cause() -> None:
    assert likely_cause("fatal: something else", "x") is None


def test_a_folder_of_another_user_is_named_as_git_names_it() -> None:
    cause = likely_cause("fatal: detected dubious ownership in repository at '/srv/a b/.git'\nTo add", "file:///srv/x")
    assert cause is not None
    assert cause.hint == "git config --global --add safe.directory '/srv/a b/.git'"


def test_git_gets_how_a_server_is_reached_and_nothing_about_repositories() -> None:
    callers = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "HTTPS_PROXY": "http://proxy.example",
        "GIT_DIR": "/x",
        "GIT_WORK_TREE": "/x",
        "GIT_INDEX_FILE": "/x",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_TERMINAL_PROMPT": "1",
        "GIT_SSH_COMMAND": "ssh -i key",
        "GIT_SSL_CAINFO": "/certs",
        "GIT_CONFIG_GLOBAL": "/site/gitconfig",
    }
    found = environment(callers)
    kept = {"PATH", "HOME", "HTTPS_PROXY", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_CONFIG_GLOBAL"}
    assert {name for name, value in found.items() if callers.get(name) == value} == kept
    assert (found["GIT_TERMINAL_PROMPT"], found["GIT_LFS_SKIP_SMUDGE"], found["LC_ALL"]) == ("0", "1", "C")
    assert "GIT_DIR" not in found


@pytest.mark.parametrize(
    ("parent", "address", "found"),
    [
        ("https://example.invalid/group/vllm.git", "../cutlass.git", "https://example.invalid/group/cutlass.git"),
        ("https://example.invalid/group/vllm/", "../../other/x", "https://example.invalid/other/x"),
        ("https://example.invalid/group/vllm", "./x/", "https://example.invalid/group/vllm/x"),
        ("ssh://git@example.invalid/vllm", "git@example.invalid:group/x.git", "git@example.invalid:group/x.git"),
        ("file:///srv/vllm", "../x", "file:///srv/x"),
        ("file:///srv/vllm", "/srv/y", "/srv/y"),
        ("https://example.invalid/vllm", "https://other.invalid/x", "https://other.invalid/x"),
    ],
)
def test_a_submodules_address_is_taken_as_git_takes_it(parent: str, address: str, found: str) -> None:
    assert submodules.address(parent, Recorded("path", REVISION, address)) == found


@pytest.mark.parametrize("address", ["file:///etc", "/etc", "ext::sh -c id", "--upload-pack=id", "-x:y", "fd::3", None])
def test_a_repository_on_a_server_cannot_make_git_read_or_run_what_is_here(address: str | None) -> None:
    with pytest.raises(BuildError, match="address") as caught:
        submodules.address("https://example.invalid/vllm", Recorded("third_party/x", REVISION, address))
    assert "third_party/x" in caught.value.what
