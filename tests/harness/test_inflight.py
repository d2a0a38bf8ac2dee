"""Generations that are in flight at a refit: held half-way before it, and accounted for one by one after it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from harness import inflight as inflight_module
from harness.calling import HttpStatusError
from harness.clock import SteadyClock
from harness.credentials import Credentials
from harness.errors import ServiceDiedError
from harness.events import PAUSES, InFlight, Stage
from harness.inflight import (
    AT_EACH_ENGINE,
    ATTEMPTS,
    FEWEST_TOKENS,
    THROUGH_FRONTEND,
    TIMED,
    TIMED_TOKENS,
    GenerationsInFlight,
)
from harness.topology import Topology, Worker

pytestmark = pytest.mark.usefixtures("quick_aftermath")
PROMPT = [2, 41, 7]
SPANS = [{"version": "1", "start": 0, "end": 2}, {"version": "2", "start": 2, "end": 3}]
ALL = AT_EACH_ENGINE + THROUGH_FRONTEND
HOLD = "keep, clear_cache=false"
STAGES: tuple[Stage, ...] = get_args(Stage)


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


class Served:
    """Engine and frontend on one loopback server. Streams go on after a first piece once they are `released`.

    The first `quick` of the engine's do not wait: they end before anybody holds them.
    """

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("").rstrip("/")
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.quick = 0
        self.last: dict[str, Any] = {"token_ids": [7], "finish_reason": "length", "weight_versions": SPANS}
        self.released = threading.Event()
        self.orders: list[str] = []
        self.answers_pause = True
        self.keys: set[str | None] = set()
        self.begins, self.was_held = threading.Event(), threading.Event()
        self.begins.set()
        server.expect_request("/pause").respond_with_handler(self._pause)
        server.expect_request("/resume").respond_with_handler(self._resume)
        server.expect_request("/inference/v1/generate").respond_with_handler(self._generate)
        server.expect_request("/v1/completions").respond_with_handler(self._complete)

    def _pause(self, request: Request) -> Response:
        self.keys.add(request.headers.get("Authorization"))
        self.orders.append(", ".join([request.args["mode"], f"clear_cache={request.args['clear_cache']}"]))
        self.was_held.set()
        if not self.answers_pause:
            self.released.wait(10)
        return Response('{"status": "paused"}')

    def _resume(self, _request: Request) -> Response:
        self.orders.append("resume")
        running, self.released = self.released, threading.Event()
        running.set()
        return Response('{"status": "resumed"}')

    @property
    def streams(self) -> list[dict[str, Any]]:
        return [body for body in self.asked if body.get("stream")]

    def _generate(self, request: Request) -> Response:
        body = json.loads(request.data)
        self.asked.append(body)
        self.keys.add(request.headers.get("Authorization"))
        if body.get("stream"):
            self.quick -= 1
            return self._stream(self._tokens(self.released, quick=self.quick >= 0))
        return Response(json.dumps({"choices": [{"token_ids": [5] * TIMED_TOKENS, "finish_reason": "length"}]}))

    def _complete(self, request: Request) -> Response:
        self.keys.add(request.headers.get("Authorization"))
        self.asked.append(json.loads(request.data))
        return self._stream(self._texts(self.released))

    def _stream(self, pieces: Iterator[bytes]) -> Response:
        if self.status != 200:
            return Response("no room", status=self.status)
        return Response(pieces, content_type="text/event-stream")

    def _tokens(self, released: threading.Event, *, quick: bool) -> Iterator[bytes]:
        self.begins.wait(10)
        yield event({"choices": [{"index": 0, "token_ids": [5]}]})
        if not quick:
            released.wait(10)
        yield event({"choices": [{"index": 0, "token_ids": [6]}]})
        yield event({"choices": [self.last]})
        yield b"data: [DONE]\n\n"

    def _texts(self, released: threading.Event) -> Iterator[bytes]:
        yield event({"choices": [{"text": "a", "finish_reason": None}]})
        released.wait(10)
        yield event({"choices": [{"text": "bc", "finish_reason": "stop"}]})
        yield event({"choices": [], "usage": {"completion_tokens": 3}})
        yield b"data: [DONE]\n\n"

    def in_flight(self, **options: Any) -> GenerationsInFlight:
        topology = Topology((Worker("backend", "1", self.url, self.url, "tiny", 1, 0),))
        return GenerationsInFlight(topology, self.url, "tiny", 512, SteadyClock(), **({"request_s": 5.0} | options))


@pytest.fixture
def served() -> Iterator[Served]:
    with HTTPServer(threaded=True) as server:
        made = Served(server)
        yield made
        made.released.set()


def crossed(served: Served, **options: Any) -> InFlight:
    in_flight = served.in_flight(**options)
    assert in_flight.begin("restored", PROMPT) == "keep"
    served.released.set()
    return in_flight.end("restored")


@pytest.mark.parametrize("stage", STAGES)
def test_each_refit_of_the_perturbation_is_to_pause_in_a_way_of_its_own(stage: Stage, served: Served) -> None:
    in_flight = served.in_flight()
    assert in_flight.begin(stage, PROMPT) == PAUSES[stage]
    served.released.set()
    told = in_flight.end(stage)
    assert (told.stage, told.pause, told.holds, len(told.generations)) == (stage, PAUSES[stage], 1, ALL)
    assert served.orders == [HOLD], "the trainer pauses and resumes, and drops the cache"
    assert {one.seen for one in told.generations} == {1}


def test_a_hold_that_caught_nothing_is_taken_back_and_tried_again_with_more_tokens(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight_module, "LASTS_S", 0.0)
    served.quick = AT_EACH_ENGINE
    in_flight = served.in_flight()
    in_flight.begin("perturbed", PROMPT)
    asked = [body["sampling_params"]["max_tokens"] for body in served.streams if "sampling_params" in body]
    assert asked == [FEWEST_TOKENS] * AT_EACH_ENGINE + [2 * FEWEST_TOKENS] * AT_EACH_ENGINE
    served.released.set()
    told = in_flight.end("perturbed")
    assert served.orders == [HOLD, "resume", HOLD]
    assert (told.holds, told.generations[0].asked) == (2, 2 * FEWEST_TOKENS)


def test_a_quick_engine_is_held_before_a_slow_one_begins(served: Served) -> None:
    with HTTPServer(threaded=True) as server:
        slow = Served(server)
        slow.begins = served.was_held
        workers = [Worker("backend", str(i), one.url, one.url, "tiny", 1, i) for i, one in enumerate((served, slow))]
        in_flight = GenerationsInFlight(Topology(tuple(workers)), served.url, "tiny", 512, SteadyClock(), request_s=5.0)
        in_flight.begin("perturbed", PROMPT)
        assert (served.orders, slow.orders) == ([HOLD], [HOLD])
        served.released.set()
        slow.released.set()
        told = in_flight.end("perturbed")
    assert told.holds == 1
    assert {one.url for one in told.generations if one.seen} == {served.url, slow.url}


def test_after_some_holds_that_caught_nothing_the_refit_comes_all_the_same(served: Served) -> None:
    served.quick = ATTEMPTS * AT_EACH_ENGINE
    told = crossed(served)
    assert served.orders == [HOLD, *["resume", HOLD] * (ATTEMPTS - 1)]
    assert told.holds == ATTEMPTS
    assert [one.ended_s < told.held_s + 0.1 for one in told.generations if one.via == "engine"] == [
        True
    ] * AT_EACH_ENGINE


def test_each_is_asked_for_all_its_tokens_and_without_a_seed(served: Served) -> None:
    """A request with a seed whose prompt is computed again in parts, as after a pause, could kill the CPU engine."""
    told = crossed(served)
    for body in served.streams:
        sampling = body.get("sampling_params", body)
        assert (sampling["ignore_eos"], sampling["max_tokens"]) == (True, told.generations[0].asked)
        assert "seed" not in sampling


def test_how_long_they_are_is_measured_once(served: Served) -> None:
    in_flight = served.in_flight()
    for _ in range(2):
        in_flight.begin("repeated", PROMPT)
        served.released.set()
        [asked] = {one.asked for one in in_flight.end("repeated").generations}
        assert FEWEST_TOKENS <= asked <= 512 - len(PROMPT)
        served.released.clear()
    assert len(served.asked) - len(served.streams) == TIMED


@pytest.mark.parametrize(
    ("lasts_s", "tokens"), [(0.0, FEWEST_TOKENS), (1e6, 512 - len(PROMPT))], ids=["too slow a pace", "a quick one"]
)
def test_there_are_a_few_tokens_at_least_and_no_more_than_there_is_room_for(
    lasts_s: float, tokens: int, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight_module, "LASTS_S", lasts_s)
    assert {one.asked for one in crossed(served).generations} == {tokens}


def test_an_engines_answer_is_recorded_with_the_versions_that_it_names(served: Served) -> None:
    one = crossed(served).generations[0]
    assert (one.via, one.status, one.tokens, one.finish_reason) == ("engine", 200, 3, "length")
    assert one.spans is not None
    assert [span.model_dump() for span in one.spans] == SPANS


def test_a_frontends_answer_is_recorded_with_its_tokens_and_no_version(served: Served) -> None:
    one = crossed(served).generations[-1]
    assert (one.via, one.status, one.tokens, one.finish_reason) == ("frontend", 200, 3, "stop")
    assert one.spans is None


def test_when_each_ended_counts_from_the_order_to_stand_still(served: Served) -> None:
    in_flight = served.in_flight()
    in_flight.begin("restored", PROMPT)
    in_flight.clock.sleep(0.05)
    served.released.set()
    told = in_flight.end("restored")
    assert told.held_s < told.refitted_s
    assert told.refitted_s >= 0.05
    assert all(0.05 <= one.ended_s < 5 for one in told.generations)


def test_an_engine_that_names_no_version_has_no_spans(served: Served) -> None:
    del served.last["weight_versions"]
    assert crossed(served).generations[0].spans is None


def test_a_refused_generation_is_recorded_with_the_servers_words(served: Served) -> None:
    served.status = 503
    one = crossed(served).generations[0]
    assert (one.status, one.tokens, one.spans, one.error) == (503, 0, None, "HTTP 503: no room")


def test_an_answer_that_cannot_be_one_is_recorded_too(served: Served) -> None:
    served.last = {"tokens": 3}
    one = crossed(served).generations[0]
    assert (one.status, one.tokens) == (200, 0)
    assert '"tokens": 3' in one.error


def test_every_call_carries_what_the_run_was_given(served: Served) -> None:
    crossed(served, credentials=Credentials(api_key="sesame", api_key_variable="KEY"))
    assert served.keys == {"Bearer sesame"}


def test_an_engine_that_does_not_take_the_order_is_an_error_in_time(served: Served) -> None:
    served.answers_pause = False
    with pytest.raises(HttpStatusError, match="got no answer") as caught:
        served.in_flight(request_s=0.3).begin("restored", PROMPT)
    assert caught.value.where is not None
    assert caught.value.where.startswith(served.url)


def test_one_that_does_not_come_back_is_recorded_as_such_in_time(served: Served) -> None:
    """Of an engine that was left paused: what that means is for the checks to say."""
    in_flight = served.in_flight(request_s=0.5)
    in_flight.begin("restored", PROMPT)
    one = in_flight.end("restored").generations[0]
    assert (one.status, one.error) == (0, "no end within 0.5 s after the refit")
    assert one.ended_s >= 0.5


def test_a_service_that_ends_is_noticed_while_they_are_awaited(served: Served) -> None:
    def dead() -> None:
        if served.streams:
            raise ServiceDiedError("engine-0 ended")

    in_flight = served.in_flight(watch=dead)
    with pytest.raises(ServiceDiedError):
        in_flight.begin("perturbed", PROMPT)
        in_flight.end("perturbed")
