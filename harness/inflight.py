"""Long generations that are in flight while a refit pauses the engines, and what becomes of each.

A refit pauses in one of three modes: `abort` ends what runs, `wait` lets it finish, `keep` holds it and goes on with it
under the new weights. Before each refit of the perturbation the harness asks for long generations, sees that their
tokens come, and holds each engine with them half-way; where it caught none, it tries again. Then the trainer refits,
and its own pause decides. What was in flight is judged by what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from harness.admin import EngineAdmin, FrontendClient
from harness.asked import Answer, Asked, Via, sampling
from harness.calling import HttpClient, HttpStatusError
from harness.clock import Clock
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.events import PAUSES, InFlight, PauseMode, Stage
from harness.poller import assume_alive
from harness.topology import Topology, Worker
from harness.vigil import Vigil, in_background

AT_EACH_ENGINE, THROUGH_FRONTEND = 4, 2
"""Generations asked of each engine directly, and of the frontend."""

SLOWED_BY = 2
"""How much longer a token takes beside the others, roughly."""

LASTS_S = 1.2
"""How long they are to take: many times what lies between their first tokens and the order to stand still."""

ATTEMPTS = 5

FRONTEND_LATER_S = 0.1
"""How much later than an engine's own tokens those that it generates for the frontend are seen at most."""

SETTLES_S = 0.1
"""How long what was sent before the engines stood still is on its way at most. Then nothing may come for as long."""

FEWEST_TOKENS = 16
"""For a machine that was busy with something else when the pace was measured, too."""

TIMED, TIMED_TOKENS = 3, 32

Value = TypeVar("Value")


@dataclass
class GenerationsInFlight:
    """Opens generations before a refit (`begin`), and collects them after it (`end`).

    `request_s` bounds everything that is waited for, `stream_s` one generation with the refit in its middle;
    `max_model_len` bounds prompt and tokens together.
    """

    topology: Topology
    frontend_url: str
    model: str
    max_model_len: int
    clock: Clock
    request_s: float = 30.0
    stream_s: float = 180.0
    watch: Callable[[], None] = assume_alive
    credentials: Credentials = NO_CREDENTIALS
    _open: list[Asked] = field(default_factory=list)
    _seen: list[int] = field(default_factory=list)
    _prompt: Sequence[int] = ()
    _tokens: int = 0
    _holds: int = 0
    _ordered: float = 0.0
    _held_s: float = 0.0
    _began: dict[str, float] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)

    def begin(self, stage: Stage, prompt: Sequence[int]) -> PauseMode:
        """Hold the engines while they generate; how the refit is to pause them.

        An attempt that caught nothing is taken back, and the next asks for twice as many tokens. The last one stands,
        and so does one with an answer that is none.
        """
        self._prompt = prompt
        if not self._tokens:
            self._tokens = self._call(self._enough_tokens, "a generation")
        for self._holds in range(1, ATTEMPTS + 1):
            self._open = [*self._asked_of_engines(), *self._asked_of_frontend()]
            if self._hold() or self._holds == ATTEMPTS or self._some_failed():
                break
            self._call(lambda: self._each(EngineAdmin.resume, self._engine_urls), "POST /resume")
            if not self._vigil.until(self._have_ended, self.request_s):
                break
            self._tokens = min(2 * self._tokens, self._room)
        return PAUSES[stage]

    def _hold(self) -> bool:
        """Whether each engine, and the frontend, now has a generation that stands still half-way.

        Each engine is held as soon as its own tokens are seen: a slow one may begin when a quick one has ended.
        """
        self._began, self._held = {}, set()
        self._vigil.until(self._have_held_those_that_run, self.request_s)
        self._order_hold([url for url in self._engine_urls if url not in self._held])
        self._held_s = self.clock.monotonic() - self._ordered
        self._vigil.until(self._have_ended, SETTLES_S)
        self._seen = [one.progress.pieces for one in self._open]
        self._vigil.until(self._have_ended, SETTLES_S)
        stands_still = self._seen == [one.progress.pieces for one in self._open]
        return stands_still and self._running == self._places

    def _have_held_those_that_run(self) -> bool:
        """Hold what can be held by now. True when all are, or one has ended before it was."""
        now = self.clock.monotonic()
        for url in {url for via, url in self._running if via == "engine"} - self._held:
            self._began.setdefault(url, now)
        by_frontend = any(via == "frontend" for via, _ in self._running)
        ready = [url for url, began in self._began.items() if by_frontend or now - began >= FRONTEND_LATER_S]
        self._order_hold([url for url in ready if url not in self._held])
        ended = {one.url for one in self._open if one.via == "engine" and one.answer.done()}
        return len(self._held) == len(self._engine_urls) or bool(ended - self._held)

    def _order_hold(self, urls: Sequence[str]) -> None:
        """The last order counts as the time of all: what is judged by it must have been held by then."""
        if urls:
            self._ordered = self.clock.monotonic()
            self._call(lambda: self._each(EngineAdmin.hold, urls), "POST /pause?mode=keep&clear_cache=false")
            self._held |= set(urls)

    def _each(self, order: Callable[[EngineAdmin], None], urls: Sequence[str]) -> None:
        """At all these engines at once."""
        engines = [engine for engine in self._engines if engine.http.base_url in urls]
        for done in [in_background(partial(order, engine)) for engine in engines]:
            done.result()

    @property
    def _engine_urls(self) -> list[str]:
        return [engine.http.base_url for engine in self._engines]

    @property
    def _places(self) -> set[tuple[str, str]]:
        return {(one.via, one.url) for one in self._open}

    @property
    def _running(self) -> set[tuple[str, str]]:
        return {(one.via, one.url) for one in self._open if one.progress.pieces and not one.answer.done()}

    def _some_failed(self) -> bool:
        return any(one.failed for one in self._open)

    def end(self, stage: Stage) -> InFlight:
        """What became of them; to be called as soon as the refit is done. One without an end is told as such."""
        refitted_s = self.clock.monotonic() - self._ordered
        self._vigil.until(self._have_ended, self.request_s)
        generations = tuple(
            one.told(seen, since=self._ordered, clock=self.clock, waited_s=self.request_s)
            for one, seen in zip(self._open, self._seen, strict=True)
        )
        self._open = []
        return InFlight(
            stage=stage,
            pause=PAUSES[stage],
            holds=self._holds,
            held_s=self._held_s,
            refitted_s=refitted_s,
            generations=generations,
        )

    def _enough_tokens(self) -> int:
        """How many tokens take long enough, by the pace of the quickest of three short generations."""
        engine = self._engines[0]
        took: list[float] = []
        for _ in range(TIMED):
            began = self.clock.monotonic()
            engine.generate(self.model, self._prompt, sampling(TIMED_TOKENS))
            took.append(self.clock.monotonic() - began)
        token_s = max(min(took), 1e-6) / TIMED_TOKENS
        return min(max(round(LASTS_S / (token_s * SLOWED_BY)), FEWEST_TOKENS), self._room)

    @property
    def _room(self) -> int:
        return self.max_model_len - len(self._prompt)

    def _asked_of_engines(self) -> list[Asked]:
        return [
            self._asked("engine", engine.http.base_url, engine.generate_streamed)
            for engine in (EngineAdmin(self._client(worker.admin_url, self.stream_s)) for worker in self._workers)
            for _ in range(AT_EACH_ENGINE)
        ]

    def _asked_of_frontend(self) -> list[Asked]:
        ask = FrontendClient(self._client(self.frontend_url, self.stream_s)).complete_streamed
        return [self._asked("frontend", self.frontend_url, ask) for _ in range(THROUGH_FRONTEND)]

    def _asked(self, via: Via, url: str, ask: Callable[..., Answer]) -> Asked:
        return Asked.of(via, url, partial(ask, self.model, self._prompt), self._tokens, self.clock)

    def _have_ended(self) -> bool:
        return all(one.answer.done() for one in self._open)

    def _call(self, ask: Callable[[], Value], what: str) -> Value:
        where = ", ".join(worker.admin_url for worker in self._workers)
        found = f"no answer within {self.request_s:g} s"
        hint = "see the engine's log; it may stand still"
        late = HttpStatusError(f"{what} got no answer in time", status=None, found=found, where=where, hint=hint)
        return self._vigil.call(ask, self.request_s, late)

    @property
    def _workers(self) -> tuple[Worker, ...]:
        return self.topology.workers

    @property
    def _engines(self) -> list[EngineAdmin]:
        return [EngineAdmin(self._client(worker.admin_url, self.request_s)) for worker in self._workers]

    def _client(self, url: str, timeout_s: float) -> HttpClient:
        return HttpClient(url, timeout_s, credentials=self.credentials)

    @property
    def _vigil(self) -> Vigil:
        return Vigil(self.clock, self.watch)
