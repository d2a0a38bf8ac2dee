"""Time in one place: a clock that can be interrupted, and one deadline type for all waiting.

Tests pass a fake clock; nothing else in the run plane calls `time.sleep`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from harness.errors import Interrupted
from harness.flag import Flag


class Clock(Protocol):
    """A monotonic clock in seconds, with a sleep that ends early (by raising) when the run is interrupted."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class InterruptibleClock:
    """The real clock. `interrupt` is set by the signal handler; every `sleep` then raises `Interrupted`."""

    def __init__(self, interrupt: Flag | None = None) -> None:
        self.interrupt = interrupt or Flag()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if self.interrupt.wait(timeout=max(0.0, seconds)):
            raise Interrupted("the run was interrupted")


class SteadyClock:
    """The real clock for teardown: an interrupt does not end its sleep, so that what was begun is completed."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


@dataclass(frozen=True)
class Deadline:
    """A point on a clock, and the number of seconds that was granted (for messages)."""

    at: float
    granted_s: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        return cls(at=clock.monotonic() + seconds, granted_s=seconds)

    def remaining(self, clock: Clock) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - clock.monotonic())

    def passed(self, clock: Clock) -> bool:
        return clock.monotonic() >= self.at
