"""F11: two complete runs at once, and bystanders whose names look like the stack's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smoke.runner import Command, assert_nothing_left

NAMES = ("vllm-rs serve tiny", "VLLM::EngineCore", "python -m dynamo.frontend", "etcd --data-dir")


@pytest.fixture
def bystanders() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Sleeping processes, called like the stack's, some of them in sessions of their own."""
    code = "import sys; sys.stdin.read()"
    started = [
        subprocess.Popen(
            [name, "-c", code, *name.split()],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            start_new_session=bool(index % 2),
        )
        for index, name in enumerate(NAMES)
    ]
    yield started
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def test_two_runs_and_the_bystanders_do_not_disturb_each_other(
    bystanders: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    runs = {steps: Command("smoke", "--steps", str(steps), run_dir=tmp_path / str(steps)) for steps in (1, 8)}
    outcomes = {steps: run.wait() for steps, run in runs.items()}
    for steps, outcome in outcomes.items():
        assert outcome.returncode == 0, outcome.explain()
        assert outcome.verdict["policy_versions"] == list(range(steps + 1))
        assert_nothing_left(outcome)
    assert [process.poll() for process in bystanders] == [None] * len(NAMES)
    assert {os.getsid(process.pid) for process in bystanders} & {process.pid for process in bystanders}
