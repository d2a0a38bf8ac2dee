"""F09: the engine's leader killed alone, its core killed, its core stopped, in each phase of a run."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from smoke.faults.outcome import ended, no_shared_memory_of, shared_memory
from smoke.faults.record import Record
from smoke.faults.stage import PHASES, STEPS, Phase, Stage

pytestmark = pytest.mark.faults
NOTICED_S = 6.0
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
    victim, number = CASES[case]
    run = stage("--steps", str(STEPS))
    target = victim(run)
    pids = {target.pid, run.leader("engine-0").pid}
    run.reach(phase)
    names = shared_memory(run)
    injection = record.begin("F09", f"{case}, {phase}")
    target.send_signal(number)
    if phase != "idle":
        run.let_go()
    # Also where the trainer waits for the same engine, and may be the first to fail: its end is what is named.
    says = rf"engine-0 (?:ended although it should run|lost a process of its own).*pid (?:{'|'.join(map(str, pids))})\b"
    status = 30 if phase == "starting" else 40
    ended(run, injection, within=NOTICED_S, status=status, kinds={"service-died"}, says=says)
    no_shared_memory_of(names)
