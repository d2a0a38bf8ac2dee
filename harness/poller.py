"""Waits for probes: one deadline for each wait, liveness in every round, and an account of what was waited for.

The clock is passed in and is the only thing that sleeps; an interrupt therefore ends every wait at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.clock import Clock, Deadline
from harness.errors import NotReadyError, SmokestackError
from harness.probes import Fatal, Pending, Probe, Ready

INTERVAL_S = 0.2


def assume_alive() -> None:
    """The liveness check of a wait that depends on no process."""


@dataclass(frozen=True)
class Wait:
    """Something to wait for: all `probes`, asked in order, before `deadline`.

    `alive` is called in every round and raises `ServiceDiedError` when waiting has become pointless. `log` is quoted
    when the wait fails; `error` is the class raised then.
    """

    name: str
    probes: tuple[Probe, ...]
    deadline: Deadline
    alive: Callable[[], None] = assume_alive
    log: Path | None = None
    error: type[SmokestackError] = NotReadyError


def wait_for(
    probe: Probe,
    *,
    deadline: Deadline,
    clock: Clock,
    alive: Callable[[], None] = assume_alive,
    interval_s: float = INTERVAL_S,
    log: Path | None = None,
    error: type[SmokestackError] = NotReadyError,
) -> Ready:
    """Ask `probe` until it is ready, at least once. Raises `error` when it is fatal or the deadline passes."""
    wait = Wait(probe.what, (probe,), deadline, alive, log, error)
    return wait_all([wait], clock=clock, interval_s=interval_s)[probe.what]


def wait_all(
    waits: Sequence[Wait],
    *,
    clock: Clock,
    alive: Callable[[], None] = assume_alive,
    on_ready: Callable[[str, float], None] | None = None,
    interval_s: float = INTERVAL_S,
) -> dict[str, Ready]:
    """Wait for several things side by side, each with its own deadline; returns each one's last answer by name.

    `alive` is called in every round, beside each wait's own. `on_ready(name, seconds since the call)` is called as
    soon as one is ready. The first failure ends the whole wait.
    """
    if len({wait.name for wait in waits}) != len(waits):
        raise ValueError("two waits have the same name")
    began = clock.monotonic()
    pending = [_Progress(wait) for wait in waits]
    answers: dict[str, Ready] = {}
    while pending:
        alive()
        for progress in list(pending):
            ready = progress.advance(clock)
            if ready is None:
                continue
            pending.remove(progress)
            answers[progress.wait.name] = ready
            if on_ready is not None:
                on_ready(progress.wait.name, clock.monotonic() - began)
        if pending:
            nearest = min(progress.wait.deadline.remaining(clock) for progress in pending)
            clock.sleep(min(interval_s, nearest))
    return answers


@dataclass
class _Progress:
    """How far one wait has come: probes before `at` are ready."""

    wait: Wait
    at: int = 0
    asked: int = 0
    last: Ready = field(default_factory=Ready)

    def advance(self, clock: Clock) -> Ready | None:
        """Ask the open probes in order, until one is not ready. Returns the last answer once all are ready."""
        # Read before asking: what is answered late, but was asked in time, still counts.
        passed = self.wait.deadline.passed(clock)
        while self.at < len(self.wait.probes):
            self.wait.alive()
            probe = self.wait.probes[self.at]
            self.asked += 1
            outcome = probe.check()
            if isinstance(outcome, Ready):
                self.last = outcome
                self.at += 1
                continue
            if isinstance(outcome, Fatal):
                raise self._failure(f"{probe.what}: waiting longer cannot help", outcome.reason)
            if passed:
                raise self._late(probe, outcome)
            return None
        return self.last

    def _late(self, probe: Probe, outcome: Pending) -> SmokestackError:
        times = "once" if self.asked == 1 else f"{self.asked} times"
        what = f"{self._subject(probe)} was not ready within {self.wait.deadline.granted_s:g} s"
        return self._failure(what, f"{outcome.reason} (asked {times})")

    def _subject(self, probe: Probe) -> str:
        return probe.what if probe.what == self.wait.name else f"{self.wait.name} ({probe.what})"

    def _failure(self, what: str, found: str) -> SmokestackError:
        return self.wait.error(
            what,
            expected=f"{self.wait.probes[self.at].what} answers",
            found=found,
            hint=f"read {self.wait.log}" if self.wait.log else None,
            where=self.wait.name,
            log=self.wait.log,
        )
