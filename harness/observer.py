"""Asks the stack itself what it serves, independently of the trainer.

Labels come from engine and sidecar, content from the engine itself (see `inspection`), and one real answer through the
frontend. Whom the weights are asked of is in `accounts`. The stack is watched meanwhile (see `vigil`). What
must hold before is asked in `guards`, labels and pauses alone in `states`; requests are timed in `timing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from harness.accounts import Account, OfRoutes
from harness.admin import EngineAdmin, FrontendClient, SidecarControl
from harness.calling import HttpClient, HttpStatusError
from harness.clock import Clock
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.events import (
    Destroyed,
    EngineObservation,
    FinishedRequests,
    Generation,
    Observed,
    Probe,
)
from harness.inspection import ObservationError, Spans, probe, probe_cache
from harness.poller import assume_alive
from harness.topology import Topology, Worker
from harness.vigil import Vigil

CHAT_PROMPT = "What is 3+4?"
CHAT_MAX_TOKENS = 12

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
            where=self.where(),
        )
        return self.vigil.call(ask, self.observe_s, late)

    def destroy(self, prompts: Sequence[Sequence[int]]) -> Destroyed:
        """Destroy the weights of every engine, and look at it."""

        def order() -> None:
            for worker in self.topology.workers:
                self.engine(worker).destroy_weights(worker.world_size)

        late = ObservationError(
            "the engines' weights were not destroyed in time",
            expected=f"an answer within {self.observe_s:g} s",
            found="a request without an answer",
            where=self.where(),
        )
        self.vigil.call(order, self.observe_s, late)
        return Destroyed(engines=self.look(prompts, "the destroyed weights"))

    def generate(self, when: Literal["before", "after"], prompt: str = CHAT_PROMPT) -> Generation:
        """One chat completion through the frontend. A failure is recorded as its status, 0 when there was no answer."""
        frontend = FrontendClient(HttpClient(self.frontend_url, self.request_s, credentials=self.credentials))
        began = self.clock.monotonic()
        try:
            answer = self.vigil.call(
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

    @property
    def vigil(self) -> Vigil:
        return Vigil(self.clock, self.watch)

    def where(self, separator: str = ", ") -> str:
        return separator.join(worker.admin_url for worker in self.topology.workers)

    def label(self, engine: EngineAdmin, worker: Worker) -> str | None:
        """None where it is not told."""
        return or_none(lambda: self.account.label(engine, worker.world_size))

    def engine(self, worker: Worker) -> EngineAdmin:
        return EngineAdmin(HttpClient(worker.admin_url, self.request_s, credentials=self.credentials))

    def sidecar(self, worker: Worker) -> SidecarControl | None:
        """None for an engine that has none."""
        if not worker.system_url:
            return None
        return SidecarControl(HttpClient(worker.system_url, self.request_s, credentials=self.credentials))

    def _probe(self, engine: EngineAdmin, prompt: Sequence[int]) -> tuple[Probe, Spans]:
        return probe(engine, self.model, prompt, new_tokens=self.new_tokens, stop_token_ids=self.stop_token_ids)

    def _observe_counted(self, worker: Worker, prompts: Sequence[Sequence[int]]) -> EngineObservation:
        """With what the engine had finished before it was asked anything, and after."""
        engine = self.engine(worker)
        before = or_none(engine.finished_requests)
        seen = self._observe_engine(worker, prompts)
        after = or_none(engine.finished_requests)
        told = None if before is None or after is None else FinishedRequests(before=before, after=after)
        return seen.model_copy(update={"finished": told})

    def _observe_engine(self, worker: Worker, prompts: Sequence[Sequence[int]]) -> EngineObservation:
        engine, sidecar = self.engine(worker), self.sidecar(worker)
        paused = or_none(engine.is_paused)
        cached = None if paused or not self.cache_prompt else probe_cache(engine, self.model, self.cache_prompt)
        asked = () if paused else tuple(self._probe(engine, prompt) for prompt in prompts)
        return EngineObservation(
            admin_url=worker.admin_url,
            system_url=worker.system_url,
            engine_label=self.label(engine, worker),
            sidecar_label=None if sidecar is None else or_none(sidecar.weight_version),
            paused=paused,
            sidecar_paused=None if sidecar is None else or_none(sidecar.is_paused),
            probes=tuple(answer for answer, _ in asked),
            spans=tuple(spans for _, spans in asked),
            cache=cached,
            ranks=or_none(lambda: self.account.held(engine)) or (),
        )


def or_none(ask: Callable[[], Value]) -> Value | None:
    """The answer, or None where the server gave none or refused."""
    try:
        return ask()
    except HttpStatusError:
        return None
