"""What every provoked fault must come to: its name, its exit status, its evidence, and nothing left."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree

from smoke.faults.record import Injection
from smoke.faults.stage import Stage
from smoke.runner import Outcome, assert_nothing_left, wait_until

SHARED_MEMORY = Path("/dev/shm")


def shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()}


def ended(
    stage: Stage,
    injection: Injection,
    *,
    within: float,
    status: int,
    kinds: Collection[str],
    says: str,
    seconds: float | None = None,
) -> Outcome:
    """Wait for the run's end and see that it is the right one. `says` is looked for in its own account.

    `seconds` is when it was noticed, where that is known better than by waiting from now on.
    """
    noticed = stage.failure_seen(within) if seconds is None else seconds
    stage.let_go()
    outcome = stage.run.wait(120)
    injection.survivors = len(outcome.verdict["survivors"])
    failure = outcome.verdict["failure"]
    assert outcome.returncode == status, outcome.explain()
    assert outcome.verdict["verdict"] == "error", outcome.explain()
    assert failure["kind"] in kinds, outcome.explain()
    cause = next(event["error"] for event in outcome.events if event["kind"] == "failure")
    told = " ".join(str(cause.get(part)) for part in ("what", "expected", "found", "hint"))
    assert re.search(says, told), told
    assert noticed <= within, f"noticed after {noticed:.1f} s"
    complete(outcome)
    injection.seconds = noticed
    injection.outcome = f"exit {status}, {failure['kind']}"
    return outcome


def complete(outcome: Outcome) -> None:
    """The evidence is written, and nothing of the run is left."""
    assert_nothing_left(outcome)
    (teardown,) = [event for event in outcome.events if event["kind"] == "teardown"]
    assert (teardown["survivors"], teardown["ports"], teardown["files"]) == ([], [], []), teardown
    assert ElementTree.parse(outcome.run_dir / "junit.xml").getroot() is not None
    assert (outcome.run_dir / "environment.json").is_file()
    assert not (outcome.run_dir / "stack.json").exists()


def no_shared_memory_since(before: set[str]) -> None:
    """Others may use shared memory for a moment meanwhile; what stays is somebody's leavings."""
    wait_until(lambda: shared_memory() <= before, f"the end of {shared_memory() - before} in {SHARED_MEMORY}", 10)
