"""What is in use of a run's GPUs before it starts anything, and after it has ended everything: asked of nvidia-smi.

The driver frees a dead process's memory some moments later, so the second look waits, within a limit. What the numbers
mean is judged in `evidence`. Made from the documented output of nvidia-smi; not measured on hardware.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.clock import Clock, Deadline, SteadyClock
from harness.environ import tool_environment
from harness.errors import DoctorError
from harness.events import GpuMemory, GpuProcess, GpuUse
from harness.evidence.gpus import risen
from harness.session import Session
from harness.tool import run_tool

SMI = "nvidia-smi"
GPUS = (SMI, "--query-gpu=index,uuid,memory.used", "--format=csv,noheader,nounits")
APPS = (SMI, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader,nounits")
ANSWER_S = 10.0
RELEASE_S = 20.0
"""How long the driver may take to free what dead processes had."""

POLL_S = 0.5
Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class GpuWatch:
    """The GPUs `names` as `CUDA_VISIBLE_DEVICES` names them. `ask` runs nvidia-smi, and raises DoctorError without."""

    names: tuple[str, ...]
    ask: Ask
    clock: Clock

    @classmethod
    def of(cls, session: Session) -> GpuWatch:
        """The end of a run looks even after an interrupt, so the clock is one that goes on."""

        def ask(argv: Sequence[str]) -> str:
            clock = SteadyClock()
            answer = run_tool(
                argv,
                env=tool_environment(os.environ),
                cwd=session.run_dir.path,
                log=session.run_dir.log(SMI),
                deadline=Deadline.after(clock, ANSWER_S),
                clock=clock,
                run_id=session.config.run_id,
                error=DoctorError,
            )
            if answer.returncode != 0:
                raise DoctorError(
                    f"{SMI} does not tell what is in use", found=answer.describe(), log=session.run_dir.log(SMI)
                )
            return answer.stdout

        return cls(session.config.gpus, ask, SteadyClock())

    def before(self) -> GpuMemory:
        return GpuMemory(when="start", gpus=self._look())

    def after(self, before: GpuMemory) -> GpuMemory:
        """What is in use once it is no more than before, or at the limit."""
        limit = Deadline.after(self.clock, RELEASE_S)
        while True:
            now = GpuMemory(when="end", gpus=self._look())
            if not risen(before, now) or limit.passed(self.clock):
                return now
            self.clock.sleep(POLL_S)

    def _look(self) -> tuple[GpuUse, ...]:
        rows = [_cells(line, 3) for line in self.ask(GPUS).splitlines() if line.strip()]
        apps = [_cells(line, 4) for line in self.ask(APPS).splitlines() if line.strip()]
        return tuple(_use(name, rows, apps) for name in self.names)


def _use(name: str, rows: Sequence[Sequence[str]], apps: Sequence[Sequence[str]]) -> GpuUse:
    row = next((row for row in rows if row[0] == name or (name.startswith("GPU-") and row[1].startswith(name))), None)
    if row is None:
        raise DoctorError(f"{SMI} lists no GPU {name}", found=", ".join(row[0] for row in rows) or "none")
    _, uuid, used = row
    processes = tuple(
        GpuProcess(pid=int(pid), program=_program(program), used_mib=_mib(taken))
        for of, pid, program, taken in apps
        if of == uuid and pid.isdecimal()
    )
    return GpuUse(name=name, used_mib=_mib(used), processes=processes)


def _cells(line: str, count: int) -> list[str]:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != count:
        raise DoctorError(f"{SMI} answered something else than asked", expected=f"{count} cells", found=line[:120])
    return cells


def _mib(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _program(text: str) -> str:
    """Its name alone: a whole command line may hold a secret."""
    return os.path.basename(text.split(" ", maxsplit=1)[0]) or "unknown"  # noqa: PTH119 - a text of the driver
