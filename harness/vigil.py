"""Waiting without looking away: for a condition, or for a call that blocks, while the run's processes are watched.

A call that blocks (HTTP to a process that may stand still) runs in a thread of its own. Whoever waits for it sleeps on
the clock, so that an interrupt, the end of a process or the deadline ends the wait at once; the thread is abandoned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from harness.clock import Clock, Deadline
from harness.errors import SmokestackError

Answer = TypeVar("Answer")

POLL_S = 0.005
WATCH_INTERVAL_S = 0.2
"""Looking after every process costs milliseconds, which the engine on the same cores would miss."""

AFTERMATH_S = 0.5
"""How long after a failed call a process may still turn out to have ended: its connections break a moment earlier."""


@dataclass(frozen=True)
class Vigil:
    """`watch` raises when a process of the run has ended or stands still, `clock` when the run is interrupted."""

    clock: Clock
    watch: Callable[[], None]

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `done()`. False once `seconds` have passed, after a last look at the processes."""
        deadline = Deadline.after(self.clock, seconds)
        watched_at = float("-inf")
        while not done():
            late, now = deadline.passed(self.clock), self.clock.monotonic()
            if late or now - watched_at >= WATCH_INTERVAL_S:
                self.watch()
                watched_at = now
            if late:
                return done()
            self.clock.sleep(POLL_S)
        return True

    def call(self, ask: Callable[[], Answer], seconds: float, late: SmokestackError) -> Answer:
        """What `ask` returns or raises; raises `late` when it does neither within `seconds`.

        A process that has ended explains a failed call better than the call itself, so that `watch` comes first.
        """
        work = in_background(ask)
        if not self.until(work.done, seconds):
            raise late
        if work.exception() is not None:
            self.until(lambda: False, AFTERMATH_S)
        return work.result()


def in_background(ask: Callable[[], Answer]) -> Future[Answer]:
    """Start `ask` in a thread of its own, which may be abandoned; what it returns or raises is in the future."""
    work: Future[Answer] = Future()
    # A daemon: the interpreter joins all others at its end, and this one may hang in a socket.
    threading.Thread(target=_work, args=(work, ask), name="vigil", daemon=True).start()
    return work


def _work(work: Future[Answer], ask: Callable[[], Answer]) -> None:
    try:
        answer = ask()
    except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the future
        work.set_exception(error)
    else:
        work.set_result(answer)
