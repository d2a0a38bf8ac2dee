"""The events of a run, read back strictly and in the order in which they were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from harness import events
from harness.evidence.check import Findings

E = TypeVar("E", bound=events.BaseEvent)


class Look(Protocol):
    """An event that is recorded at the beginning of something, and again at its end."""

    @property
    def when(self) -> str: ...


L = TypeVar("L", bound=Look)


def first_and_last(looks: Sequence[L], beginning: str, end: str) -> tuple[L | None, L | None]:
    """The widest pair: the first that was recorded at the beginning, and the last at the end."""
    first = next((look for look in looks if look.when == beginning), None)
    last = next((look for look in reversed(looks) if look.when == end), None)
    return first, last


@dataclass(frozen=True)
class Unreadable:
    """An object in the event list that no model accepts; `place` counts from 1, as lines of `events.jsonl` do."""

    place: int
    kind: str
    reason: str


@dataclass(frozen=True)
class Timeline:
    """All events in written order. An unreadable one speaks against every check that relies on its kind."""

    entries: tuple[events.Event, ...]
    unreadable: tuple[Unreadable, ...]

    @classmethod
    def read(cls, recorded: Iterable[Mapping[str, Any]]) -> Timeline:
        entries: list[events.Event] = []
        unreadable: list[Unreadable] = []
        for place, fields in enumerate(recorded, start=1):
            try:
                entries.append(events.parse_fields(fields))
            except events.EventError as error:
                unreadable.append(Unreadable(place, str(fields.get("kind")), str(error)))
        return cls(tuple(entries), tuple(unreadable))

    def of(self, kind: type[E]) -> list[E]:
        """All readable events of one kind."""
        return [event for event in self.entries if isinstance(event, kind)]

    def require(self, kind: type[E], findings: Findings) -> list[E]:
        """The same as evidence: what cannot be read is noted as wrong, and none at all as missing."""
        name = kind.model_fields["kind"].default
        broken = [item for item in self.unreadable if item.kind == name]
        findings.wrong += [f"event {item.place} ({name}) is unreadable: {item.reason}" for item in broken]
        found = self.of(kind)
        if not found and not broken:
            findings.missing.append(f"no {name} event")
        return found

    def position(self, event: events.BaseEvent) -> int:
        """Where `event` (an entry of this timeline) stands in the order."""
        return next(index for index, entry in enumerate(self.entries) if entry is event)

    def last_refit(self, version: int) -> int | None:
        """The position of the last refit to `version`, or None when there was none."""
        places = [self.position(refit) for refit in self.of(events.Refit) if refit.version == version]
        return max(places, default=None)

    def last_change(self, version: int | None) -> int | None:
        """Where the weights may have changed last; None when there was no such event.

        At the refit to `version` or a refit of the perturbation that follows; without one, when the command ended.
        """
        if version is None:
            return max((self.position(ended) for ended in self.of(events.CommandEnded)), default=None)
        refits = [refit for refit in self.of(events.Refit) if refit.version == version]
        return max((self.position(refit) for refit in (*refits, *self.of(events.Perturbation))), default=None)

    @property
    def failure(self) -> events.RunFailure | None:
        """Why the run ended early: the first failure is the cause."""
        return next((event.error for event in self.of(events.Failure)), None)
