"""F10: a run that is interrupted, at any time and twice, leaves nothing and still writes a verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from harness.signals import SAME_REQUEST_S
from smoke.runner import ROOT, Command, Outcome, assert_nothing_left, processes_of, read_events, wait_until


def interrupted(outcome: Outcome) -> None:
    assert outcome.returncode == 130, outcome.explain()
    verdict = outcome.verdict
    assert verdict["verdict"] == "error"
    assert verdict["failure"]["kind"] == "interrupted"
    assert_nothing_left(outcome)


@pytest.mark.parametrize(
    ("number", "seconds"), [(signal.SIGINT, 1), (signal.SIGTERM, 3), (signal.SIGINT, 8), (signal.SIGTERM, 20)]
)
def test_after_a_while(number: signal.Signals, seconds: int, tmp_path: Path) -> None:
    run = Command("smoke", run_dir=tmp_path / "run")
    assert run.still_runs_after(seconds), run.wait().explain()
    run.send(number)
    interrupted(run.wait(90))


def test_during_a_refit_and_again_during_teardown(tmp_path: Path) -> None:
    """The refit follows the step at once. The second signal must be later than what counts as the same request."""
    run = Command("smoke", "--steps", "50", run_dir=tmp_path / "run")
    wait_until(lambda: bool(seen(run, "step")), "the first step", 180)
    run.send(signal.SIGINT)
    wait_until(lambda: bool(seen(run, "failure")), "the interruption", 30)
    again = time.monotonic() + 2 * SAME_REQUEST_S
    wait_until(lambda: time.monotonic() > again, "a moment that is another request")
    run.send(signal.SIGINT)
    outcome = run.wait(90)
    interrupted(outcome)
    assert [e["version"] for e in seen(run, "refit")] == [0], outcome.explain()
    ended = {e["service"]: e["returncode"] for e in seen(run, "service.exited")}
    assert ended["engine-0"] == -signal.SIGKILL, "the second signal ends the patience with the engine"


def seen(run: Command, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(run.run_dir) if event["kind"] == kind]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_through_noxw(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C reaches the whole foreground group; a CI server's SIGTERM only the top process."""
    run_dir = tmp_path / "run"
    noxw = subprocess.Popen(
        [str(ROOT / "noxw"), "-s", "smoke", "--", "--run-dir", str(run_dir)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: any(e.get("service") == "engine-0" for e in read_events(run_dir)), "the engine's start", 60)
    if number == signal.SIGINT:
        os.killpg(noxw.pid, number)
    else:
        noxw.send_signal(number)
    output, _ = noxw.communicate(timeout=60)
    assert noxw.returncode != 0, output
    wait_until((run_dir / "verdict.json").exists, "the verdict", 60)
    wait_until(lambda: not processes_of(read_events(run_dir)), "the end of the run", 60)
    interrupted(Outcome(130, output, output, run_dir, 0.0))
