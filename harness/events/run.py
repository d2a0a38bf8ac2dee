"""Events of the run itself: its start, phases, remarks, early end and teardown."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from harness.errors import SmokestackError
from harness.events.base import Count, Data, HarnessEvent

PhaseName = Literal["install", "ready", "train", "teardown"]


class RunStarted(HarnessEvent):
    """The first event: the resolved configuration."""

    kind: Literal["run.started"] = "run.started"
    config: dict[str, Any]


class Phase(HarnessEvent):
    """A phase has ended after `seconds`."""

    kind: Literal["phase"] = "phase"
    phase: PhaseName
    seconds: float


class Note(HarnessEvent):
    """A remark for people; never evidence."""

    kind: Literal["note"] = "note"
    text: str


class Survivor(Data):
    pid: Count
    service: str
    cmd: str


class Teardown(HarnessEvent):
    """What the run left behind, as found after everything was stopped: all three lists empty when clean."""

    kind: Literal["teardown"] = "teardown"
    survivors: tuple[Survivor, ...]
    ports: tuple[Count, ...]
    files: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        return not (self.survivors or self.ports or self.files)


class RunFailure(Data):
    """Why the run ended early. `log` is a path; `exit_code` is the status of the outcome contract."""

    kind: str
    what: str
    expected: str | None = None
    found: str | None = None
    where: str | None = None
    hint: str | None = None
    log: str | None = None
    exit_code: Annotated[int, Field(strict=True, ge=1, le=255)]


class Failure(HarnessEvent):
    """The run ended early. The first one is the cause; later ones happened while it was being wound up."""

    kind: Literal["failure"] = "failure"
    error: RunFailure

    @classmethod
    def of(cls, error: SmokestackError) -> Failure:
        """The event that records `error`."""
        return cls(
            error=RunFailure(
                kind=error.kind,
                what=error.what,
                expected=error.expected,
                found=error.found,
                where=error.where,
                hint=error.hint,
                log=None if error.log is None else str(error.log),
                exit_code=error.exit_code,
            )
        )
