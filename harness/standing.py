"""A stack on disk: `stack.json` in its run folder says how to reach it and how another command takes it down.

Written as the stack starts, so that a stack whose harness was killed is found as well as one that was left running, and
removed once nothing of it is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.ending import never
from harness.errors import UsageError
from harness.process import RecordedProcess
from harness.proctable import ProcessId, ProcessTable, read_boot_id, read_row
from harness.rundir import write_json
from harness.shm import SharedMemory
from harness.teardown import Leftovers, look_around, stop_in_phases

STATE_FILE = "stack.json"

Situation = Literal["standing", "running", "orphaned", "rebooted"]
"""Left up on purpose; owned by a command that still works; its owner has ended; the machine was started again since."""


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Owner(_Closed):
    """The command that started a stack and will take it down itself. `start_time` as in `ProcessId`."""

    pid: int
    start_time: int

    @classmethod
    def this_process(cls) -> Owner:
        row = read_row(os.getpid())
        assert row is not None, "this process is in the process table"
        return cls(pid=row.pid, start_time=row.id.start_time)

    def alive(self) -> bool:
        row = read_row(self.pid)
        return row is not None and row.id == ProcessId(self.pid, self.start_time) and not row.ended


class StandingService(_Closed):
    """One service. `ports` are its own, by name."""

    service: str
    pid: int
    start_time: int
    session: int
    run_id: str
    members: tuple[tuple[int, int], ...]
    log: Path
    ports: dict[str, int]
    stop_grace_s: float

    @property
    def record(self) -> RecordedProcess:
        fields: dict[str, Any] = self.model_dump(exclude={"log", "ports", "stop_grace_s"})
        return RecordedProcess.from_fields(fields)


class StandingStack(_Closed):
    """Everything that a later command needs. `tmp_dir` is the run's scratch folder, to be removed with the stack.

    `owner` is None once the stack was left to later commands.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    run_id: str
    boot_id: str
    owner: Owner | None
    stack: str
    model: str
    run_dir: Path
    tmp_dir: Path
    urls: dict[str, str]
    services: tuple[StandingService, ...]

    def write(self) -> Path:
        """To `stack.json` in the run folder, whole or not at all."""
        return write_json(self.run_dir / STATE_FILE, self.model_dump(mode="json", by_alias=True))

    @classmethod
    def load(cls, run_dir: Path) -> StandingStack:
        """Raises UsageError when no stack was left running from that folder."""
        path = run_dir / STATE_FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError as missing:
            raise UsageError(
                "no stack was left running from this run",
                expected=str(path),
                found="no such file",
                where=str(run_dir),
                hint="./noxw -s status shows the stacks that are up",
            ) from missing
        except OSError as unreadable:
            raise UsageError(
                f"{STATE_FILE} cannot be read: {unreadable.strerror}",
                expected="a file that this user may read",
                found=str(unreadable.strerror),
                where=str(path),
                hint="ask as the user who brought that stack up",
            ) from unreadable
        except ValidationError as invalid:
            raise UsageError(
                f"{STATE_FILE} is not what this version reads",
                found=str(invalid),
                where=str(path),
                hint=f"end what it names by hand, then remove {path}",
            ) from invalid

    @property
    def situation(self) -> Situation:
        if self.boot_id != read_boot_id():
            return "rebooted"
        if self.owner is None:
            return "standing"
        return "running" if self.owner.alive() else "orphaned"

    def alive(self) -> dict[str, bool]:
        """Whether each service's own process still runs."""
        this_boot = self.boot_id == read_boot_id()
        return {service.service: this_boot and service.record.alive() for service in self.services}

    def take_down(self, *, urgent: Callable[[], bool] = never) -> Leftovers:
        """Stop every service that still runs, as the run itself would have done. The state file is left in place."""
        if self.boot_id != read_boot_id():
            # Its processes ended with that boot, and what now bears their numbers is somebody else's.
            return Leftovers(survivors=(), ports=(), seconds=0.0)
        began = time.monotonic()
        records = [service.record for service in self.services]
        table = ProcessTable.read()
        living = [row.pid for record in records for row in record.tree().update(table, marks=True)]
        memory = SharedMemory(held_by=living)
        stop_in_phases(
            {
                service.service: partial(record.stop, service.stop_grace_s, urgent=urgent)
                for service, record in zip(self.services, records, strict=True)
            }
        )
        left = look_around(
            self.run_id,
            [record.tree() for record in records],
            [port for service in self.services for port in service.ports.values()],
            seconds=time.monotonic() - began,
        )
        return replace(left, files=memory.remove_own())


def forget(run_dir: Path) -> None:
    """Nothing of that run's stack is left. Fine when another command has found so before."""
    (run_dir / STATE_FILE).unlink(missing_ok=True)


@dataclass(frozen=True)
class Survey:
    """The stacks of a folder of runs, and why others could not be read."""

    stacks: tuple[StandingStack, ...]
    unreadable: tuple[UsageError, ...]

    @classmethod
    def of(cls, runs: Path) -> Survey:
        stacks: list[StandingStack] = []
        unreadable: list[UsageError] = []
        for path in sorted(runs.glob(f"*/{STATE_FILE}")):
            if path.parent.is_symlink():
                continue
            try:
                stacks.append(StandingStack.load(path.parent))
            except UsageError as error:
                # Another command may have taken it down just now.
                if path.exists():
                    unreadable.append(error)
        return cls(tuple(stacks), tuple(unreadable))
