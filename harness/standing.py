"""A stack that is left running: `stack.json` in its run folder says how to reach it and how to take it down later."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.ending import never
from harness.errors import UsageError
from harness.process import RecordedProcess
from harness.rundir import write_json
from harness.teardown import Leftovers, look_around, stop_in_phases

STATE_FILE = "stack.json"


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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
    """Everything that a later command needs. `tmp_dir` is the run's scratch folder, to be removed with the stack."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    run_id: str
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
                "no stack was left running from this run", expected=str(path), found="no such file", where=str(run_dir)
            ) from missing
        except ValidationError as invalid:
            raise UsageError(
                f"{STATE_FILE} is not what this version reads", found=str(invalid), where=str(path)
            ) from invalid

    def alive(self) -> dict[str, bool]:
        """Whether each service's own process still runs."""
        return {service.service: service.record.alive() for service in self.services}

    def take_down(self, *, urgent: Callable[[], bool] = never) -> Leftovers:
        """Stop every service that still runs, as the run itself would have done. The state file is left in place."""
        began = time.monotonic()
        records = [service.record for service in self.services]
        stop_in_phases(
            {
                service.service: partial(record.stop, service.stop_grace_s, urgent=urgent)
                for service, record in zip(self.services, records, strict=True)
            }
        )
        return look_around(
            self.run_id,
            [record.tree() for record in records],
            [port for service in self.services for port in service.ports.values()],
            seconds=time.monotonic() - began,
        )
