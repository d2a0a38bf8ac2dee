"""Asks the stack itself what it serves, independently of the trainer.

Labels come from engine and sidecar, content from the engine itself (see `inspection`), and one real answer through the
frontend. Whom the weights are asked of is in `accounts`. The stack is watched meanwhile (see `vigil`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from harness.accounts import Account, OfRoutes
from harness.admin import EngineAdmin, FrontendClient, SidecarControl
from harness.calling import HttpBodyError, HttpClient, HttpStatusError
from harness.clock import Clock
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.errors import NotReadyError
from harness.events import (
    Destroyed,
    EngineLabels,
    EngineObservation,
    FinishedRequests,
    Generation,
    Observed,
    Probe,
    RequestTimes,
)
from harness.inspection import ObservationError, Spans, probe, probe_cache
from harness.poller import assume_alive
from harness.topology import Topology, Worker
from harness.vigil import Vigil

CHAT_PROMPT = "What is 3+4?"
CHAT_MAX_TOKENS = 12
WARM_UP, TIMED = 5, 50
"""Requests that are sent first and not counted, and those that are."""

MOMENTS = 3
"""How often two labels are asked for before it is taken that they change faster than can be asked."""

TEXT_KEPT = 2000
"""Characters of an answer that are recorded: far more than was asked for."""


Value = TypeVar("Value")


@dataclass(frozen=True)
class Observer:
    """Where to ask. `request_s` bounds every single request, `observe_s` everything that belongs to one observation.

    `watch` raises when a process of the run has ended; `new_tokens` is how many tokens a probe generates. With a
    `cache_prompt` (of several blocks of the KV cache), an observation begins with what the prefix cache holds of it.
    """

    topology: Topology
    frontend_url: str
    model: str
    clock: Clock
    new_tokens: int = 8
    request_s: float = 30.0
    observe_s: float = 60.0
    watch: Callable[[], None] = assume_alive
    stop_token_ids: Sequence[int] = field(default_factory=tuple)
    credentials: Credentials = NO_CREDENTIALS
    account: Account = field(default_factory=OfRoutes)
    cache_prompt: Sequence[int] = field(default_factory=tuple)

    def observe(self, prompts: Sequence[Sequence[int]], version: int) -> Observed:
        """Every engine and its sidecar, while nobody changes them.

        A server that gives no label is recorded as None. A paused engine is not probed: it would never answer.
        Raises HttpStatusError when an engine that is not paused does not answer a probe, and ObservationError for an
        impossible answer or when the whole takes longer than `observe_s`.
        """

        return Observed(version=version, engines=self.look(prompts, f"version {version}"))

    def look(self, prompts: Sequence[Sequence[int]], what: str) -> tuple[EngineObservation, ...]:
        """The same without a version of its own; `what` names it for an error."""

        def ask() -> tuple[EngineObservation, ...]:
            return tuple(self._observe_counted(worker, prompts) for worker in self.topology.workers)

        late = ObservationError(
            f"the observation of {what} did not end in time",
            expected=f"all labels and probes within {self.observe_s:g} s",
            found="a request without an answer",
            where=self._where(),
        )
        return self._vigil.call(ask, self.observe_s, late)

    def labels(self, request_s: float) -> tuple[EngineLabels, ...]:
        """What every engine and sidecar says of itself; asked without a look at the processes meanwhile."""
        quick = replace(self, request_s=request_s)
        return tuple(quick._ask_labels(worker) for worker in self.topology.workers)

    def _ask_labels(self, worker: Worker) -> EngineLabels:
        """Both labels of one moment: asked again when the engine's was set between the two questions."""
        engine, sidecar = self._engine(worker), self._sidecar(worker)
        label = self._label(engine, worker)
        for _ in range(MOMENTS):
            sidecar_label = None if sidecar is None else _or_none(sidecar.weight_version)
            paused = _or_none(engine.is_paused)
            before, label = label, self._label(engine, worker)
            if before == label:
                break
        return EngineLabels(admin_url=worker.admin_url, engine_label=label, sidecar_label=sidecar_label, paused=paused)

    def require_unpaused(self) -> None:
        """Raise NotReadyError for an engine that somebody left paused: it says that it is well, and never generates."""
        self._require_none(
            EngineAdmin.is_paused,
            "GET /is_paused",
            "an engine is paused before anybody of this run has paused it",
            expected="GET /is_paused says false on every engine",
            found="paused:",
            hint="whatever paused it may have died since: POST /resume there, or restart the engine",
        )

    def pauses(self, request_s: float) -> dict[str, bool | None]:
        """Of each engine by its admin URL whether it says that it is paused; None for one that gives no sound answer.

        Asked without a look at the processes: for a run that is ending, whose cause no answer may take the place of,
        nor one that does not come.
        """
        quick = replace(self, request_s=request_s, watch=assume_alive)
        workers = self.topology.workers
        late = HttpStatusError("GET /is_paused", status=None, found="no answer", where=self._where())
        told: dict[str, bool | None] = dict.fromkeys((worker.admin_url for worker in workers), None)

        def ask() -> None:
            for worker in workers:
                told[worker.admin_url] = sound(quick._engine(worker))

        def sound(engine: EngineAdmin) -> bool | None:
            try:
                return engine.is_paused()
            except (HttpStatusError, HttpBodyError):
                return None

        with suppress(HttpStatusError):
            quick._vigil.call(ask, (request_s + 1) * len(workers), late)
        return dict(told)

    def require_world_sizes(self) -> None:
        """Raise NotReadyError for an engine that itself has another number of ranks than discovery tells of it.

        The transfer group would wait for a rank that nobody has, or have no place for one.
        """
        where = self._where(" and ")
        late = HttpStatusError(
            f"GET /get_world_size of {where} got no answer in time", status=None, found="no answer", where=where
        )
        workers = self.topology.workers
        sizes = self._vigil.call(lambda: [self._engine(w).world_size() for w in workers], self.request_s, late)
        wrong = [(worker, size) for worker, size in zip(workers, sizes, strict=True) if size != worker.world_size]
        if wrong:
            raise NotReadyError(
                "an engine does not have the ranks that discovery tells of it",
                expected=", ".join(f"{worker.world_size} at {worker.admin_url}" for worker, _ in wrong),
                found=", ".join(f"{size} at {worker.admin_url}" for worker, size in wrong),
                where=", ".join(worker.admin_url for worker, _ in wrong),
                hint="the sidecar talks to another engine than its admin URL names, or the engine was restarted",
            )

    def require_no_open_update(self) -> None:
        """Raise NotReadyError for an engine on which somebody opened a weight update and never finished it.

        To be asked before anything is generated: on the CPU, vLLM's engine core does not survive that.
        """
        self._require_none(
            self.account.has_open_update,
            "the question for an open weight update",
            "an engine has a weight update open that somebody else began and never finished",
            expected="no update before the run's first one",
            found="a weight update is already active on",
            hint="its weights are half taken apart: restart the engine",
        )

    def _require_none(
        self, ask: Callable[[EngineAdmin], bool], route: str, what: str, *, expected: str, found: str, hint: str
    ) -> None:
        """Raise NotReadyError for the engines that answer yes, HttpStatusError when one does not answer in time."""
        late = HttpStatusError(
            f"{route} of {self._where(' and ')} got no answer in time",
            status=None,
            found="no answer",
            where=self._where(" and "),
        )
        workers = self.topology.workers
        told = self._vigil.call(lambda: [w.admin_url for w in workers if ask(self._engine(w))], self.request_s, late)
        if told:
            where = ", ".join(told)
            raise NotReadyError(what, expected=expected, found=f"{found} {where}", where=where, hint=hint)

    def _where(self, separator: str = ", ") -> str:
        return separator.join(worker.admin_url for worker in self.topology.workers)

    def destroy(self, prompts: Sequence[Sequence[int]]) -> Destroyed:
        """Destroy the weights of every engine, and look at it."""

        def order() -> None:
            for worker in self.topology.workers:
                self._engine(worker).destroy_weights(worker.world_size)

        late = ObservationError(
            "the engines' weights were not destroyed in time",
            expected=f"an answer within {self.observe_s:g} s",
            found="a request without an answer",
            where=self._where(),
        )
        self._vigil.call(order, self.observe_s, late)
        return Destroyed(engines=self.look(prompts, "the destroyed weights"))

    def generate(self, when: Literal["before", "after"], prompt: str = CHAT_PROMPT) -> Generation:
        """One chat completion through the frontend. A failure is recorded as its status, 0 when there was no answer."""
        frontend = FrontendClient(HttpClient(self.frontend_url, self.request_s, credentials=self.credentials))
        began = self.clock.monotonic()
        try:
            answer = self._vigil.call(
                lambda: frontend.chat(self.model, prompt, max_tokens=CHAT_MAX_TOKENS),
                self.request_s,
                HttpStatusError(
                    f"{self.frontend_url} got no answer",
                    status=None,
                    found=f"no whole answer within {self.request_s:g} s",
                    where=self.frontend_url,
                ),
            )
        except HttpStatusError as failed:
            return Generation(
                when=when,
                status=failed.status or 0,
                text=failed.found or "",
                completion_tokens=0,
                finish_reason=None,
                seconds=self.clock.monotonic() - began,
            )
        return Generation(
            when=when,
            status=200,
            text=answer.text[:TEXT_KEPT],
            completion_tokens=answer.completion_tokens,
            finish_reason=answer.finish_reason,
            seconds=self.clock.monotonic() - began,
        )

    def time_requests(self, prompt: Sequence[int]) -> tuple[RequestTimes, ...]:
        """How long one token takes of the serving side, and of the first engine itself: turn by turn.

        In turns, so that whatever slows the machine down slows both. Where both are the same, it is asked alone.
        """
        engine_url = self.topology.workers[0].admin_url
        urls = {"engine": engine_url} if self.frontend_url == engine_url else {"frontend": self.frontend_url}
        urls["engine"] = engine_url
        taken: dict[str, list[float]] = {via: [] for via in urls}

        def ask() -> None:
            for _ in range(WARM_UP + TIMED):
                for via, url in urls.items():
                    server = HttpClient(url, self.request_s, credentials=self.credentials)
                    began = self.clock.monotonic()
                    EngineAdmin(server).generate(self.model, prompt, {"temperature": 0.0, "max_tokens": 1})
                    taken[via].append(self.clock.monotonic() - began)

        late = ObservationError(
            "the timed requests did not end in time",
            expected=f"{WARM_UP + TIMED} answers each within {self.observe_s:g} s",
            found="a request without an answer",
            where=", ".join(urls.values()),
        )
        self._vigil.call(ask, self.observe_s, late)
        return tuple(
            RequestTimes.model_validate({"via": via, "seconds": seconds[WARM_UP:]}) for via, seconds in taken.items()
        )

    def _probe(self, engine: EngineAdmin, prompt: Sequence[int]) -> tuple[Probe, Spans]:
        return probe(engine, self.model, prompt, new_tokens=self.new_tokens, stop_token_ids=self.stop_token_ids)

    @property
    def _vigil(self) -> Vigil:
        return Vigil(self.clock, self.watch)

    def _label(self, engine: EngineAdmin, worker: Worker) -> str | None:
        return _or_none(lambda: self.account.label(engine, worker.world_size))

    def _engine(self, worker: Worker) -> EngineAdmin:
        return EngineAdmin(HttpClient(worker.admin_url, self.request_s, credentials=self.credentials))

    def _sidecar(self, worker: Worker) -> SidecarControl | None:
        """None for an engine that has none."""
        if not worker.system_url:
            return None
        return SidecarControl(HttpClient(worker.system_url, self.request_s, credentials=self.credentials))

    def _observe_counted(self, worker: Worker, prompts: Sequence[Sequence[int]]) -> EngineObservation:
        """With what the engine had finished before it was asked anything, and after."""
        engine = self._engine(worker)
        before = _or_none(engine.finished_requests)
        seen = self._observe_engine(worker, prompts)
        after = _or_none(engine.finished_requests)
        told = None if before is None or after is None else FinishedRequests(before=before, after=after)
        return seen.model_copy(update={"finished": told})

    def _observe_engine(self, worker: Worker, prompts: Sequence[Sequence[int]]) -> EngineObservation:
        engine, sidecar = self._engine(worker), self._sidecar(worker)
        paused = _or_none(engine.is_paused)
        cached = None if paused or not self.cache_prompt else probe_cache(engine, self.model, self.cache_prompt)
        asked = () if paused else tuple(self._probe(engine, prompt) for prompt in prompts)
        return EngineObservation(
            admin_url=worker.admin_url,
            system_url=worker.system_url,
            engine_label=self._label(engine, worker),
            sidecar_label=None if sidecar is None else _or_none(sidecar.weight_version),
            paused=paused,
            sidecar_paused=None if sidecar is None else _or_none(sidecar.is_paused),
            probes=tuple(answer for answer, _ in asked),
            spans=tuple(spans for _, spans in asked),
            cache=cached,
            ranks=_or_none(lambda: self.account.held(engine)) or (),
        )


def _or_none(ask: Callable[[], Value]) -> Value | None:
    """The answer, or None where the server gave none or refused."""
    try:
        return ask()
    except HttpStatusError:
        return None
