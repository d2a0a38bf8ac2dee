"""The processes that a service cannot live without, though its leader would not notice.

`vllm-rs` answers `/health` with 200 while its engine core or a worker is dead or stands still: so their identities
are kept, and looked up again, which costs one small file each.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import ServiceDiedError
from harness.events import Processes, ProcessRecord
from harness.process import Process
from harness.proctable import ProcessId, ProcessRow, ProcessTable, command_of, read_row

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second, in which the kernel gives a process's start since boot."""


STOPPED = "it is stopped (SIGSTOP, or a debugger)"


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

    def check(self) -> None:
        """Raise ServiceDiedError when one of them has ended or is stopped."""
        for process, command in self.commands.items():
            state = _state_of(process)
            if state is None or state in "Tt":
                raise _lost(self.service, self.log, process, command, "it has ended" if state is None else STOPPED)


def require_none_stopped(process: Process, living: Iterable[ProcessRow]) -> None:
    """Raise ServiceDiedError when one of the service's living processes is stopped."""
    for row in living:
        if row.stopped:
            raise _lost(process.spec.name, process.spec.log, row.id, command_of(row.pid), STOPPED)


def roll_call(
    services: Mapping[str, Process], *, when: Literal["start", "end"], fingerprint: str, with_children: Collection[str]
) -> Processes:
    """What lives now, read from the process table alone, so that whoever is missing, replaced or new shows.

    Each service's leader; of those in `with_children` all processes, since an engine is more than its leader.
    """
    table = ProcessTable.read()
    records: list[ProcessRecord] = []
    for name, process in services.items():
        living = process.tree.update(table)
        records += [
            ProcessRecord(service=name, pid=row.pid, start_time=row.id.start_time / TICKS_PER_S)
            for row in living
            if name in with_children or row.pid == process.pid
        ]
    return Processes(when=when, fingerprint=fingerprint, processes=tuple(records))


def _lost(service: str, log: Path, process: ProcessId, command: str, found: str) -> ServiceDiedError:
    return ServiceDiedError(
        f"{service} lost a process of its own, whatever its /health says",
        expected=f"pid {process.pid} ({command}) runs",
        found=found,
        where=service,
        hint=f"read {log}",
        log=log,
    )


def _state_of(process: ProcessId) -> str | None:
    """The kernel's letter for its state; None when it has ended."""
    row = read_row(process.pid)
    return None if row is None or row.id != process or row.ended else row.state
