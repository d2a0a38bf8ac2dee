"""Waiting in tests, through the project's own poller: it ends in time, and says for what it waited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.clock import Deadline, InterruptibleClock
from harness.poller import wait_for
from harness.probes import Outcome, Pending, Ready

CLOCK = InterruptibleClock()


@dataclass(frozen=True)
class Condition:
    """Ready when it holds."""

    what: str
    holds: Callable[[], bool]

    def check(self) -> Outcome:
        return Ready() if self.holds() else Pending("it does not hold yet")


def until(what: str, holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until `holds()`; raises NotReadyError after `seconds`."""
    wait_for(Condition(what, holds), deadline=Deadline.after(CLOCK, seconds), clock=CLOCK, interval_s=0.01)
