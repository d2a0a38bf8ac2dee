"""F10: a run that is interrupted, at any time and twice, leaves nothing and still writes a verdict."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from smoke.runner import Command, Outcome, assert_nothing_left, read_events, wait_until


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
    run = Command("smoke", "--steps", "50", run_dir=tmp_path / "run")
    wait_until(lambda: any(e["kind"] == "refit" for e in read_events(run.run_dir)), "the first refit", 180)
    run.send(signal.SIGINT)
    wait_until(lambda: any(e["kind"] == "failure" for e in read_events(run.run_dir)), "the interruption", 30)
    run.send(signal.SIGINT)
    interrupted(run.wait(90))
