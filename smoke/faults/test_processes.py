"""F09: the engine's leader killed alone, its core killed, its core stopped, in each phase of a run."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from smoke.faults.outcome import ended, no_shared_memory_since, shared_memory
from smoke.faults.record import Record
from smoke.faults.stage import PHASES, STEPS, Phase, Stage

pytestmark = pytest.mark.faults
NOTICED_S = 6.0
SAYS = (
    r"engine-0 (?:ended although it should run|lost a process of its own)|the refit to version|rollouts (?:failed|did)"
)

Victim = Callable[[Stage], psutil.Process]
CASES: dict[str, tuple[Victim, signal.Signals]] = {
    "SIGKILL to vllm-rs alone": (lambda stage: stage.leader("engine-0"), signal.SIGKILL),
    "SIGKILL to EngineCore": (lambda stage: stage.core(), signal.SIGKILL),
    "SIGSTOP to EngineCore": (lambda stage: stage.core(), signal.SIGSTOP),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", CASES)
def test_f09_an_engine_that_lost_a_process_is_noticed(
    case: str, phase: Phase, stage: Callable[..., Stage], record: Record
) -> None:
    before = shared_memory()
    victim, number = CASES[case]
    run = stage("--steps", str(STEPS))
    target = victim(run)
    run.reach(phase)
    injection = record.begin("F09", f"{case}, {phase}")
    target.send_signal(number)
    if phase != "idle":
        run.let_go()
    # While the trainer waits for the same engine, either may be the first to say so: one cause, one status.
    kinds = {"service-died"} if phase in {"starting", "idle"} else {"service-died", "refit", "training"}
    status = 30 if phase == "starting" else 40
    ended(run, injection, within=NOTICED_S, status=status, kinds=kinds, says=SAYS)
    no_shared_memory_since(before)
