"""One refit, for any transfer backend: pause, start, update, finish with the version, reset caches, resume.

vLLM's trainer-side engine moves the bytes (and drives start, update and finish through the fleet); the session owns
order, time limits and what failure means. HTTP runs where it times out, the collective where it can be abandoned.

A refit that failed after it began is terminal: engines that may hold half of the weights stay paused, the session
refuses further work, and no collective is ever tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, TypeVar

from smokestack_payload.background import in_background
from smokestack_payload.errors import RefitError
from smokestack_payload.refit.admin import WAIT, EngineFleet, FleetError
from smokestack_payload.refit.limit import Limit
from smokestack_payload.refit.manifest import Expected, check_source

T = TypeVar("T")
ALREADY_OPEN = "already active"
"""What vLLM answers to the start of an update while another one is open."""

RAISE_THE_LIMIT = "--refit-timeout raises the limit"

LAST_WORDS_S = 1.0
"""How long a collective may still explain itself after an engine's call has failed."""


class TransferEngine(Protocol):
    """What the session needs of vLLM's `TrainerWeightTransferEngine`, and of whatever stands in its place.

    One that has something to do while the engines still serve has `prepare(version)` as well: should that fail, they
    have lost nothing.
    """

    def send_weights(self) -> None: ...

    def shutdown(self) -> None: ...

    def abort(self) -> None:
        """Give the group up without its peers, within a few seconds."""


class State(Enum):
    """NEW has no group yet; POISONED is final."""

    NEW = "new"
    READY = "ready"
    UPDATING = "updating"
    POISONED = "poisoned"


@dataclass(frozen=True)
class RefitReport:
    """A refit that reached every engine. `seconds` by phase; `total` is from the pause to the last resume.

    `workers` has what each worker rank said of its own load, where the backend reports that.
    """

    version: int
    seconds: Mapping[str, float]
    engines: list[str]
    workers: Mapping[int, Mapping[str, float]]


class RefitSession:
    """Drives the refits of one run over all engines of `fleet`. Not for use from several threads.

    `limit_s` is granted to a refit as a whole, what it prepares before the pause included.
    """

    def __init__(
        self,
        fleet: EngineFleet,
        source: Any,
        expected: Expected,
        limit_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = State.NEW
        self._clock = clock
        self._fleet = fleet
        self._source = source
        self._expected = expected
        self._limit_s = limit_s
        self._engine: TransferEngine | None = None

    def initialise(self, connect: Callable[[EngineFleet, Any], TransferEngine], limit_s: float) -> float:
        """Form the transfer group by `connect(client, source)`, once. Returns seconds.

        The source is checked first: a group for weights that do not fit is not worth forming.
        """
        self._require(State.NEW, "initialise")
        check_source(self._source.metadata(), self._expected)
        self._fleet.begin(None, limit_s)
        begun = self._clock()
        limit = Limit(limit_s, begun + limit_s, self._clock)
        try:
            self._engine = self._watched("the rendezvous", lambda: connect(self._fleet, self._source), limit)
        except RefitError:
            self.state = State.POISONED
            raise
        self.state = State.READY
        return self._clock() - begun

    def refit(self, version: int, label: str | None = None, pause: str = WAIT) -> RefitReport:
        """Give every engine the source's weights as `version`. Raises RefitError, see the module.

        `label` is what the engines shall call them, where that is not the version's number; `pause` is one of
        `PAUSE_MODES`.
        """
        label = str(version) if label is None else label
        self._require(State.READY, f"refit to version {label}")
        check_source(self._source.metadata(), self._expected)
        limit = Limit(self._limit_s, self._clock() + self._limit_s, self._clock)
        prepared = self._prepare(label, limit)
        limit = replace(limit, prepared_s=prepared)
        self.state = State.UPDATING
        self._fleet.begin(label, limit.left())
        begun = self._clock()
        try:
            self._watched(f"the refit to version {label}", lambda: self._round(pause), limit)
        except RefitError as error:
            self.state = State.POISONED
            self._abort()
            unsure = self._fleet.hold()
            error.poisoned = tuple(url for url in self._fleet.urls if url not in unsure)
            if unsure:
                error.what += f"; not known to be paused: {', '.join(unsure)}"
            raise
        self.state = State.READY
        seconds = {**self._fleet.seconds, "prepare": prepared, "total": self._clock() - begun}
        workers = getattr(self._engine, "worker_reports", None) or {}
        return RefitReport(version=version, seconds=seconds, engines=self._fleet.urls, workers=workers)

    def _prepare(self, label: str, limit: Limit) -> float:
        """What can be done before the pause. Returns seconds.

        Where it leaves no time for the rest, that is not begun: no engine is paused for nothing.
        """
        prepare = getattr(self._engine, "prepare", None)
        if prepare is None:
            return 0.0
        self._fleet.begin(label, limit.left())
        begun = self._clock()
        self._watched(f"writing version {label}", lambda: prepare(label), limit)
        if limit.left() == 0:
            raise self._late(f"writing version {label}", limit)
        return self._clock() - begun

    def close(self) -> None:
        """Drop the group and the connections. Engines keep their weights and their state."""
        if self._engine is not None and self.state is State.READY:
            self._engine.shutdown()
        self._fleet.close()

    def _abort(self) -> None:
        """A peer may be gone: the group is given up from here alone, and never by a collective."""
        if self._engine is not None:
            self._engine.abort()

    def _round(self, pause: str) -> None:
        assert self._engine is not None
        self._fleet.pause(pause)
        self._engine.send_weights()
        self._fleet.reset_prefix_cache()
        self._fleet.resume()

    def _require(self, wanted: State, what: str) -> None:
        if self.state is not wanted:
            raise RefitError(
                f"cannot {what}: the session is {self.state.value}",
                expected=f"state {wanted.value}",
                found=f"state {self.state.value}",
                hint="restart engines and trainer: a failed refit is not repeated on the same engines",
                poisoned=self._fleet.urls if self.state is State.POISONED else (),
            )

    def _watched(self, what: str, call: Callable[[], T], limit: Limit) -> T:
        """`call` in a thread of its own, until it ends, an engine's call fails, or the time is up."""
        work = in_background(what, call)
        watched: list[Future[Any]] = [work, self._fleet.failure]
        wait(watched, timeout=limit.left(), return_when=FIRST_COMPLETED)
        if self._fleet.failure.done():
            wait([work], timeout=LAST_WORDS_S)
        if work.done():
            error = work.exception()
            if error is None:
                return work.result()
            raise self._failed(what, error, limit) from error
        if self._fleet.failure.done():
            error = self._fleet.failure.exception()
            assert error is not None
            raise self._failed(what, error, limit) from error
        raise self._late(what, limit)

    def _late(self, what: str, limit: Limit) -> RefitError:
        if self.state is State.READY:
            return RefitError(
                f"{what} left no time for the refit: no engine was touched",
                expected=f"written and loaded {limit}",
                found=f"writing after {limit.granted_s - limit.left():.1f} s",
                hint=f"look at the disk where the run's temporary files lie; {RAISE_THE_LIMIT}",
            )
        return RefitError(
            f"{what} did not end in time",
            expected=f"done {limit}",
            found=f"still in phase {self._fleet.phase!r}; its collective was abandoned",
            where=", ".join(self._fleet.urls),
            hint=f"look for a stopped worker process in the engine's log; {RAISE_THE_LIMIT}",
        )

    def _failed(self, what: str, error: BaseException, limit: Limit) -> RefitError:
        if isinstance(error, RefitError):
            return error
        abandoned = self._fleet.phase == "start" and ALREADY_OPEN in str(error)
        opened = ": somebody opened a weight update on the engine and never finished it" if abandoned else ""
        return RefitError(
            f"{what} failed in phase {self._fleet.phase!r}{opened}: {error}",
            expected=f"every engine answers every phase with success, {limit}",
            found=f"{type(error).__name__}",
            where=", ".join(self._failing() or self._fleet.urls),
            hint="the engine's own log has the cause; restart engines and trainer",
        )

    def _failing(self) -> list[str]:
        """The engines whose own calls failed, where it is known which."""
        failure = self._fleet.failure.exception() if self._fleet.failure.done() else None
        errors = failure.errors if isinstance(failure, FleetError) else ()
        return [url for url in self._fleet.urls if any(error.url.startswith(f"{url}/") for error in errors)]
