"""What every provoked fault must come to: its name, its exit status, its evidence, and nothing left."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from harness.topology import Topology, Worker
from smoke.faults.record import Injection
from smoke.faults.stage import Stage
from smoke.runner import Outcome, assert_nothing_left, processes_of, read_events

MAPPED = re.compile(r" (/dev/shm/\S+)")


def shared_memory(run: Stage) -> set[Path]:
    """The shared memory that the run's processes have mapped by name."""
    found: set[Path] = set()
    for process in processes_of(read_events(run.run.run_dir)):
        with suppress(OSError):
            found |= set(map(Path, MAPPED.findall(Path(f"/proc/{process.pid}/maps").read_text())))
    return found


def topology_of(event: Mapping[str, Any]) -> Topology:
    """The topology as an event of the run tells it: who is in it, not what each can do."""
    known = [field.name for field in fields(Worker) if field.compare]
    return Topology(tuple(Worker(**{name: worker[name] for name in known}) for worker in event["workers"]))


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
    injection.survivors = max(injection.survivors, len(processes_of(outcome.events)))
    failure = outcome.verdict["failure"]
    assert outcome.returncode == status, outcome.explain()
    assert outcome.verdict["verdict"] == "error", outcome.explain()
    assert failure["kind"] in kinds, outcome.explain()
    causes = [event["error"] for event in outcome.events if event["kind"] == "failure"]
    assert causes, outcome.explain()
    told = " ".join(str(causes[0].get(part)) for part in ("what", "expected", "found", "hint"))
    assert re.search(says, told), told
    assert noticed <= within, f"noticed after {noticed:.1f} s"
    complete(outcome)
    told_to_ci(outcome)
    injection.seconds = noticed
    injection.outcome = f"exit {status}, {failure['kind']}"
    return outcome


def complete(outcome: Outcome) -> None:
    """The evidence is written, and nothing of the run is left."""
    assert_nothing_left(outcome)
    (teardown,) = [event for event in outcome.events if event["kind"] == "teardown"]
    assert (teardown["survivors"], teardown["ports"], teardown["files"]) == ([], [], []), teardown
    assert json.loads((outcome.run_dir / "environment.json").read_text())
    cases = {case.get("name") for case in ElementTree.parse(outcome.run_dir / "junit.xml").getroot().iter("testcase")}
    assert cases >= {check["id"] for check in outcome.verdict["checks"]}, cases
    assert not (outcome.run_dir / "stack.json").exists()


def told_to_ci(outcome: Outcome) -> None:
    """A CI server reads the failure as it is in the verdict, and the log that is named is there to be read."""
    (error,) = ElementTree.parse(outcome.run_dir / "junit.xml").getroot().iter("error")
    failure = outcome.verdict["failure"]
    assert (error.get("type"), error.get("message")) == (failure["kind"], failure["what"])
    if failure["log"] is not None:
        # It may be empty: what is killed at its start has said nothing.
        assert (outcome.run_dir / failure["log"]).is_file(), failure["log"]


def no_shared_memory_of(names: set[Path]) -> None:
    left = [str(path) for path in names if path.exists()]
    assert not left, left
