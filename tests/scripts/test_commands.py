"""Children of the build plane: a clean environment, a useful error, and nothing left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import commands
from scripts.environ import child_environment
from scripts.errors import BuildError
from scripts.layout import PROJECT_ROOT

# Runs a child that ignores SIGTERM and has a child of its own. All hold the write end of a pipe, so that its end of
# file means that all are gone.
PARENT = """
import os, sys
from pathlib import Path
from scripts import commands
commands.STOP_GRACE_S = 0.2
commands.stop_on_signals()
descriptor, log = int(sys.argv[1]), Path(sys.argv[2])
fifo = f"/proc/{os.getpid()}/fd/{descriptor}"
script = f"exec 3>{fifo}; trap '' TERM; sleep 600 & echo started >&3; wait; sleep 600"
try:
    commands.run(["sh", "-c", script], cwd=Path("/"), env=os.environ, log=log)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_what_would_change_the_outcome_is_dropped_and_the_sites_settings_stay() -> None:
    environ = {
        "PATH": "/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "/x",
        "VIRTUAL_ENV": "/x",
        "UV_OVERRIDE": "x",
        "PIP_TARGET": "x",
        "UV_CACHE_DIR": "/cache",
        "PIP_CERT": "/cert",
        "HTTPS_PROXY": "http://proxy.example",
    }
    assert child_environment(environ, {"NEW": "1"}) == {
        "PATH": "/bin",
        "UV_CACHE_DIR": "/cache",
        "PIP_CERT": "/cert",
        "HTTPS_PROXY": "http://proxy.example",
        "NEW": "1",
    }


def test_a_failure_has_the_status_the_end_of_the_output_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "child.log"
    script = "for i in $(seq 100); do echo line $i; done; echo 'cause: no space' >&2; exit 7"
    with pytest.raises(BuildError, match="making it failed") as caught:
        commands.check(
            ["sh", "-c", script], cwd=tmp_path, env=os.environ, log=log, error=BuildError, what="making it", hint="df"
        )
    found = caught.value.found or ""
    assert found.splitlines()[0] == "7"
    assert "line 100" in found
    assert "line 50\n" not in found
    assert found.rstrip().endswith("cause: no space")
    assert (caught.value.log, caught.value.hint) == (log, "df")


def test_the_output_is_returned_and_the_log_begins_with_the_command(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    finished = commands.run(["echo", "two words"], cwd=tmp_path, env=os.environ, log=log)
    assert (finished.returncode, finished.output) == (0, "two words\n")
    assert log.read_text() == "$ echo 'two words'\ntwo words\n"


def test_an_answer_for_a_program_to_read_has_no_warning_in_between(tmp_path: Path) -> None:
    log, answer = tmp_path / "child.log", tmp_path / "answer"
    script = "printf 'a\\0'; echo 'warning: beware' >&2; printf 'b\\0'"
    finished = commands.run(["sh", "-c", script], cwd=tmp_path, env=os.environ, log=log, answer=answer)
    assert answer.read_bytes() == b"a\0b\0"
    assert finished.output == "warning: beware\n"
    assert log.read_text().endswith("warning: beware\n")


def test_a_child_that_does_not_end_in_time_is_ended_with_its_children(tmp_path: Path) -> None:
    read, write = os.pipe()
    fifo = f"/proc/{os.getpid()}/fd/{write}"
    with pytest.raises(BuildError, match="asking it failed") as caught:
        commands.check(
            ["sh", "-c", f"exec 3>{fifo}; sleep 600 & echo half; wait"],
            cwd=tmp_path,
            env=os.environ,
            log=tmp_path / "log",
            error=BuildError,
            what="asking it",
            limit_s=0.3,
        )
    os.close(write)
    assert caught.value.expected == "its end within 0.3 s"
    assert (caught.value.found or "").startswith("it still ran\n")
    assert (caught.value.found or "").endswith("half")
    assert read_when_ready(read) == b"", "the grandchild holds the pipe open"
    os.close(read)


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[subprocess.Popen[bytes], int]:
    """A build-plane process with a stubborn child and grandchild, and the read end of the pipe that all hold open."""
    read, write = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(write), str(tmp_path / "log")], cwd=PROJECT_ROOT, pass_fds=(write,)
    )
    os.close(write)

    def end() -> None:
        parent.kill()
        parent.wait()
        os.close(read)

    request.addfinalizer(end)
    assert read_when_ready(read) == b"started\n"
    return parent, read


def read_when_ready(descriptor: int) -> bytes:
    ready, _, _ = select.select([descriptor], [], [], 30.0)
    assert ready, "nothing came within 30 s"
    return os.read(descriptor, 100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_child_and_its_children_also_stubborn_ones(
    running: tuple[subprocess.Popen[bytes], int], number: signal.Signals
) -> None:
    parent, pipe = running
    parent.send_signal(number)
    assert read_when_ready(pipe) == b""
    assert parent.wait(30) == 130


def test_a_second_signal_does_not_cut_the_clean_up_short(running: tuple[subprocess.Popen[bytes], int]) -> None:
    parent, pipe = running
    parent.send_signal(signal.SIGTERM)
    parent.send_signal(signal.SIGINT)
    parent.send_signal(signal.SIGTERM)
    assert read_when_ready(pipe) == b""
    assert parent.wait(30) == 130


def test_a_child_asks_to_end_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import ctypes, signal; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); "
        "print(signal.Signals(n.value).name)"
    )
    finished = commands.run([sys.executable, "-c", script], cwd=tmp_path, env=os.environ, log=tmp_path / "log")
    assert finished.output == "SIGTERM\n"


def test_a_child_has_the_umask_that_it_is_given(tmp_path: Path) -> None:
    umasks = [
        commands.run(["sh", "-c", "umask"], cwd=tmp_path, env=os.environ, log=tmp_path / "log", umask=mask).output
        for mask in (0o022, 0o077)
    ]
    assert umasks == ["0022\n", "0077\n"]


def test_a_watch_is_called_while_the_child_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child ends because the watch has seen it."""
    monkeypatch.setattr(commands, "WATCH_EVERY_S", 0.02)
    script = "echo begun; while ! test -e seen; do sleep 0.02; done"

    def watch() -> None:
        if "begun" in (tmp_path / "log").read_text():
            (tmp_path / "seen").touch()

    finished = commands.run(
        ["sh", "-c", script], cwd=tmp_path, env=os.environ, log=tmp_path / "log", limit_s=30.0, watch=watch
    )
    assert (finished.returncode, finished.expired) == (0, False)


def test_a_watched_child_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "WATCH_EVERY_S", 0.02)
    finished = commands.run(
        ["sleep", "60"], cwd=tmp_path, env=os.environ, log=tmp_path / "log", limit_s=0.1, watch=lambda: None
    )
    assert finished.expired


def test_a_question_writes_nothing(tmp_path: Path) -> None:
    finished = commands.ask(["sh", "-c", "echo out; echo err >&2; exit 3"], cwd=tmp_path, env=os.environ)
    assert finished is not None
    assert (finished.returncode, finished.output) == (3, "out\nerr\n")
    assert list(tmp_path.iterdir()) == []


def test_a_question_to_nobody_has_no_answer(tmp_path: Path) -> None:
    assert commands.ask(["no-such-program"], cwd=tmp_path, env=os.environ) is None
