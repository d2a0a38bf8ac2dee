"""The processes that a service cannot live without, though its leader would not notice.

`vllm-rs` answers `/health` with 200 while its engine core or a worker is dead or stands still: so their identities
are kept, and looked up again, which costs one small file each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ServiceDiedError
from harness.process import Process
from harness.proctable import ProcessId, command_of, read_row

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second, in which the kernel gives a process's start since boot."""


@dataclass(frozen=True)
class Vitals:
    """Identities with their command lines, taken while the service was known to be well."""

    service: str
    log: Path
    commands: Mapping[ProcessId, str]

    @classmethod
    def of(cls, process: Process) -> Vitals:
        """The service's leader and all that descends from it now."""
        return cls(process.spec.name, process.spec.log, {row.id: command_of(row.pid) for row in process.snapshot()})

    @classmethod
    def of_leader(cls, process: Process) -> Vitals:
        return cls(process.spec.name, process.spec.log, {process.id: command_of(process.pid)})

    def living(self) -> list[ProcessId]:
        """Those of them that have not ended, sorted."""
        return sorted(one for one in self.commands if _state_of(one) is not None)

    def check(self) -> None:
        """Raise ServiceDiedError when one of them has ended or is stopped."""
        for process, command in self.commands.items():
            state = _state_of(process)
            if state is None or state in "Tt":
                raise ServiceDiedError(
                    f"{self.service} lost a process of its own, whatever its /health says",
                    expected=f"pid {process.pid} ({command}) runs",
                    found="it has ended" if state is None else "it is stopped (SIGSTOP, or a debugger)",
                    where=self.service,
                    hint=f"read {self.log}",
                    log=self.log,
                )


def _state_of(process: ProcessId) -> str | None:
    """The kernel's letter for its state; None when it has ended."""
    row = read_row(process.pid)
    return None if row is None or row.id != process or row.ended else row.state
