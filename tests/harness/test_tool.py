"""A one-shot command is run to its end, or ended wholly, and what it prints is passed on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.clock import Deadline, InterruptibleClock
from harness.errors import InstallError, Interrupted
from harness.proctable import ProcessTable, environment_of
from harness.tool import ToolResult, run_tool

CLOCK = InterruptibleClock()


def run(
    folder: Path, script: str, *, seconds: float = 20.0, clock: InterruptibleClock = CLOCK, **options: object
) -> ToolResult:
    return run_tool(
        [sys.executable, "-c", "import os, signal, subprocess, sys, time\nsignal.alarm(60)\n" + script],
        env={"PATH": os.defpath},
        cwd=folder,
        log=folder / "install.log",
        deadline=Deadline.after(clock, seconds),
        clock=clock,
        run_id=f"tool-{folder.name}",
        **options,  # type: ignore[arg-type]
    )


def of_this_run(folder: Path) -> list[int]:
    mark = f"tool-{folder.name}"
    return [pid for pid in ProcessTable.read() if environment_of(pid).get("SMOKESTACK_RUN_ID") == mark]


def test_the_status_and_the_output_come_back_and_the_rest_goes_to_the_log(tmp_path: Path) -> None:
    lines: list[str] = []
    script = "print('{\"ok\": true}'); print('step one', file=sys.stderr); sys.stderr.write('no newline'); sys.exit(20)"
    result = run(tmp_path, script, on_line=lines.append)
    assert (result.returncode, result.stdout) == (20, '{"ok": true}\n')
    assert lines == ["step one", "no newline"]
    assert (tmp_path / "install.log").read_text() == "step one\nno newline"
    assert result.describe() == "ended with exit status 20"


def test_each_line_is_passed_on_while_the_command_runs(tmp_path: Path) -> None:
    """The command ends only after its first line has come through."""
    go = tmp_path / "go"
    script = (
        "sys.stderr.write('half a '); sys.stderr.flush(); time.sleep(0.1)\nprint('line', file=sys.stderr, flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    )
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(line)
        go.touch()

    assert run(tmp_path, script, on_line=note).returncode == 0
    assert lines == ["half a line"]


def test_a_second_command_with_the_same_log_appends_to_it_and_has_its_own_output(tmp_path: Path) -> None:
    run(tmp_path, "print('first'); print('one', file=sys.stderr)")
    lines: list[str] = []
    result = run(tmp_path, "print('second'); print('two', file=sys.stderr)", on_line=lines.append)
    assert result.stdout == "second\n"
    assert lines == ["two"]
    assert (tmp_path / "install.log").read_text() == "one\ntwo\n"


def test_a_child_that_keeps_the_output_open_does_not_hold_it_up_and_is_ended(tmp_path: Path) -> None:
    result = run(tmp_path, "print('done'); subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])")
    assert result.stdout == "done\n"
    assert result.seconds < 20
    assert of_this_run(tmp_path) == []


def test_at_the_deadline_everything_is_ended_and_the_command_is_named(tmp_path: Path) -> None:
    script = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    with pytest.raises(InstallError, match="install did not end in time") as raised:
        run(tmp_path, script, seconds=0.3)
    assert "within 0.3 s" in str(raised.value)
    assert raised.value.log == tmp_path / "install.log"
    assert of_this_run(tmp_path) == []


def test_an_interrupt_lets_the_command_clean_up_and_ends_it(tmp_path: Path) -> None:
    clock = InterruptibleClock()
    script = (
        "def clean(*_):\n    open('cleaned', 'w').close(); os._exit(130)\n"
        "signal.signal(signal.SIGTERM, clean)\nprint('ready', file=sys.stderr, flush=True)\ntime.sleep(60)"
    )
    with pytest.raises(Interrupted):
        run(tmp_path, script, clock=clock, on_line=lambda _line: clock.interrupt.set())
    assert (tmp_path / "cleaned").exists()
    assert of_this_run(tmp_path) == []


def test_a_missing_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="cannot be started"):
        run_tool(
            ["/nowhere/python"],
            env={},
            cwd=tmp_path,
            log=tmp_path / "x.log",
            deadline=Deadline.after(CLOCK, 1),
            clock=CLOCK,
        )
