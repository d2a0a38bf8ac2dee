"""Follows the version labels while somebody else's trainer works: what engines and sidecars say, whenever it changes.

Only routes that generate nothing are asked: a probe in the middle of an update could end the engine, and a sampled
label is no proof of weights anyway (see `evidence.command`). What is set and replaced between two looks is not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from harness.clock import Clock
from harness.events import BaseEvent, EngineLabels, LabelsSeen

LOOK_AGAIN_S = 0.1


class LabelWatch:
    """Asks in a thread, so that an engine that is busy with an update holds nobody up. `look` never blocks."""

    def __init__(
        self, ask: Callable[[], tuple[EngineLabels, ...]], *, clock: Clock, emit: Callable[[BaseEvent], None]
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._emit = emit
        self._pending: Future[tuple[EngineLabels, ...]] | None = None
        self._due = clock.monotonic()
        self._last: tuple[EngineLabels, ...] | None = None

    def look(self) -> None:
        """Take an answer that has come, and ask again when it is time. To be called again and again."""
        if self._pending is not None and self._pending.done():
            told, self._pending = self._pending.result(), None
            self._due = self._clock.monotonic() + LOOK_AGAIN_S
            self._note(told)
        if self._pending is None and self._clock.monotonic() >= self._due:
            self._pending = self._begin()

    def _begin(self) -> Future[tuple[EngineLabels, ...]]:
        asked: Future[tuple[EngineLabels, ...]] = Future()
        # A daemon: the interpreter joins all others at its end, and this one may hang in a socket.
        threading.Thread(target=_work, args=(asked, self._ask), name="labels", daemon=True).start()
        return asked

    def _note(self, told: tuple[EngineLabels, ...]) -> None:
        """An engine that gave no answer is as it was, as far as anybody knows."""
        if any(one.engine_label is None or one.paused is None for one in told) or told == self._last:
            return
        self._last = told
        self._emit(LabelsSeen(engines=told))


def _work(asked: Future[tuple[EngineLabels, ...]], ask: Callable[[], tuple[EngineLabels, ...]]) -> None:
    try:
        told = ask()
    except BaseException as error:  # noqa: BLE001 - raised again by whoever takes the answer
        asked.set_exception(error)
    else:
        asked.set_result(told)
