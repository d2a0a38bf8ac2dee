"""From its first moment on, the program takes a signal for a request: an orderly end, with the status of one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import run, session
from harness.cli import main
from harness.errors import DoctorError, Interrupted
from harness.models import ModelChoice
from harness.request import Request
from harness.session import opened
from harness.signals import InterruptSignals

ROOT = Path(__file__).parents[2]

INTERRUPTED_WHILE_IT_IMPORTS = """
import importlib.abc, runpy, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "harness.cli":
            signal.raise_signal(signal.{name})

sys.meta_path.insert(0, Interrupting())
runpy.run_module("harness", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_during_the_imports_is_an_orderly_end(name: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    code = INTERRUPTED_WHILE_IT_IMPORTS.format(name=name)
    argv = [sys.executable, "-c", code, "smoke", "--json", "--run-dir", str(run_dir)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert (
        done.stderr == f"smokestack: interrupted: {name} before the run began: nothing was started, "
        "there is no run folder\n"
    )
    assert json.loads(done.stdout)["failure"]["kind"] == "interrupted"
    assert not run_dir.exists()


def asked(root: Path) -> Request:
    return Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=root, quiet=True)


def test_a_signal_before_the_run_folder_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "make_scratch", signalled(session.make_scratch))
    with pytest.raises(Interrupted, match="there is no run folder"), opened(asked(tmp_path)):
        pytest.fail("it was opened")
    assert not (tmp_path / "runs").exists()


def test_a_signal_after_the_run_folder_ends_the_run_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "EventLog", signalled(session.EventLog))
    monkeypatch.setattr(run, "install", lambda opened_session: opened_session.clock.sleep(60))
    assert run.smoke(asked(tmp_path)) == 130
    verdict = json.loads((tmp_path / "runs" / "latest" / "verdict.json").read_text())
    assert verdict["failure"]["kind"] == "interrupted"


def signalled(function: Any) -> Any:
    """`function`, with a SIGTERM that arrives when it is called."""

    def call(*args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return function(*args, **options)

    return call


@pytest.mark.parametrize(
    ("options", "kind"),
    [(["--stack", "nowhere"], "usage"), (["--model", "nothing/here"], "usage"), (["--port", "nobody=1"], "usage")],
)
def test_with_json_a_refusal_is_a_verdict_too(
    options: list[str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["smoke", "--json", "--steps", "3", *options]) == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["schema"], document["verdict"], document["steps"]) == (1, "error", 3)
    assert document["failure"]["kind"] == kind
    assert (document["checks"], document["survivors"]) == ([], [])
    assert captured.err.startswith("smokestack: usage: ")


def test_with_json_a_machine_that_lacks_something_is_a_verdict_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(_caller: object) -> None:
        raise DoctorError("no temporary folder", found="a file is in its place", hint="set TMPDIR")

    monkeypatch.setattr(session, "make_scratch", no_room)
    assert main(["smoke", "--json", "--run-dir", str(tmp_path / "run")]) == 10
    document = json.loads(capsys.readouterr().out)
    assert document["failure"] == {
        "kind": "doctor",
        "what": "no temporary folder",
        "expected": None,
        "found": "a file is in its place",
        "where": None,
        "hint": "set TMPDIR",
        "log": None,
    }


@pytest.mark.parametrize("command", ["status", "down"])
def test_with_json_other_commands_fail_in_json_too(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--json", "--run-dir", str(tmp_path / "nowhere")]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verdict"], document["failure"]["kind"]) == (1, "error", "usage")


def test_a_command_within_another_hears_what_that_one_was_told() -> None:
    with InterruptSignals() as outer:
        signal.raise_signal(signal.SIGTERM)
        with InterruptSignals() as inner:
            assert inner.interrupt.is_set()
            assert inner.received == outer.received == ["SIGTERM"]
        with InterruptSignals(monotonic=lambda: 1e12) as later:
            signal.raise_signal(signal.SIGINT)
            assert later.urgent.is_set(), "it is the second request"
    with InterruptSignals() as fresh:
        assert not fresh.interrupt.is_set()
