"""The observer asks engine, sidecar and frontend themselves, and takes no half answer for evidence."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from harness.admin import EngineAdmin
from harness.calling import HttpBodyError, HttpStatusError
from harness.clock import InterruptibleClock, SteadyClock
from harness.errors import Interrupted, NotReadyError, ServiceDiedError, SmokestackError
from harness.events import Cut
from harness.guards import require_no_open_update, require_unpaused, require_world_sizes
from harness.inspection import ObservationError, slices_of
from harness.observer import Observer
from harness.states import labels_of, pauses_of
from harness.timing import TIMED, WARM_UP, time_requests
from harness.topology import Topology, Worker

pytestmark = pytest.mark.usefixtures("quick_aftermath")
PROMPT = [2, 41, 7]
PROMPT_LOGPROBS: list[Any] = [
    None,
    {"2": {"logprob": -0.1, "rank": 1}, "41": {"logprob": -5.5, "rank": 9}},
    {"7": {"logprob": -1.25, "rank": 2}},
]
CHOICE = {
    "token_ids": [5, 6],
    "finish_reason": "length",
    "logprobs": {
        "content": [{"token_id": 5, "logprob": -0.5, "rank": 1}, {"token_id": 6, "logprob": -0.25, "rank": 1}]
    },
}

AA, BB, CC = ("a" * 64, "b" * 64, "c" * 64)
HELD = {"name": "norm.weight", "how": "held", "dtype": "float32", "shape": [2], "sha256": None}
READ_BACK = {"name": "q_proj.weight", "how": "multiplied", "dtype": "float32", "shape": [2, 2], "sha256": BB}
EMPTY = hashlib.sha256(b"").hexdigest()


class Served:
    """An engine, its sidecar and the frontend on one loopback server; fields may be exchanged by a test."""

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("").rstrip("/")
        self.paused: Any = False
        self.engine_label: Any = "3"
        self.changing: list[str] = []
        self.world_size = 1
        self.metrics, self.metrics_status = "vllm:request_success_total 7\n", 200
        self.sidecar_status = 200
        self.generated: dict[str, Any] = {"choices": [CHOICE], "prompt_logprobs": PROMPT_LOGPROBS}
        self.generate_status = 200
        self.chat_status = 200
        self.contents_status = 200
        self.obeyed: list[Any] = [None]
        self.contents: list[Any] = [{"prefix": "tp0:", "parameters": [HELD, READ_BACK]}]
        self.checksums = {"tp0:norm.weight": AA, "tp0:qkv_proj.weight": EMPTY}
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.called: list[str] = []
        self.start_answer: tuple[int, dict[str, Any]] = (200, {})
        self.may_answer = threading.Event()
        self.may_answer.set()
        answers: dict[str, Callable[[], tuple[int, dict[str, Any]]]] = {
            "/is_paused": lambda: (200, {"is_paused": self.paused}),
            "/get_world_size": lambda: (200, {"world_size": self.world_size}),
            "/start_weight_update": lambda: self.start_answer,
            "/finish_weight_update": lambda: (200, {}),
            "/weight_info": lambda: (200, {"weight_version": self._label()}),
            "/engine/control/get_weight_version": lambda: (self.sidecar_status, {"weight_version": "2"}),
            "/engine/control/is_paused": lambda: (self.sidecar_status, {"is_paused": False}),
            "/inference/v1/generate": lambda: (self.generate_status, self.generated),
            "/v1/completions": lambda: (200, self._completion()),
            "/v1/chat/completions": lambda: (self.chat_status, _chat("7")),
            "/collective_rpc": lambda: (self.contents_status, {"results": self._called()}),
            "/weight_checker": lambda: (200, {"checksums": self.checksums}),
        }

        def handle(request: Request) -> Response:
            self.may_answer.wait()
            self.paths.append(request.path)
            if request.path == "/collective_rpc":
                self.called.append(json.loads(request.data)["method"])
            if request.path in ("/inference/v1/generate", "/v1/completions"):
                self.asked.append(json.loads(request.data))
            if request.path == "/metrics":
                return Response(self.metrics, status=self.metrics_status)
            status, document = answers[request.path]()
            return Response(json.dumps(document), status=status)

        for path in (*answers, "/metrics"):
            server.expect_request(path).respond_with_handler(handle)

    def _label(self) -> Any:
        return self.changing.pop(0) if self.changing else self.engine_label

    def _called(self) -> list[Any]:
        return self.contents if self.called[-1] == "smokestack_contents" else self.obeyed

    def _completion(self) -> dict[str, Any]:
        """The second one of a prompt comes from the cache, unless the prompt's log-probabilities are asked for."""
        cached = {"cached_tokens": 2} if len(self.asked) > 1 and "prompt_logprobs" not in self.asked[-1] else None
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": cached}
        return {"choices": [{"logprobs": {"token_logprobs": [-0.5 - len(self.asked)]}}], "usage": usage}

    def observer(self, **options: Any) -> Observer:
        worker = Worker("backend", "1", self.url, self.url, "tiny", 1, 0)
        return Observer(Topology((worker,)), self.url, "tiny", SteadyClock(), request_s=2.0, **options)


def _chat(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}


@pytest.fixture
def served(httpserver: HTTPServer) -> Iterator[Served]:
    yield Served(httpserver)
    httpserver.check_assertions()


@pytest.fixture
def hanging(served: Served) -> Iterator[threading.Event]:
    """Nobody answers until the test is over."""
    served.may_answer.clear()
    yield served.may_answer
    served.may_answer.set()


class TestWhatAnEngineHolds:
    def test_a_digest_is_the_engines_own_where_it_holds_the_tensor_under_that_name(self, served: Served) -> None:
        [engine] = served.observer().observe([], 0).engines
        [rank] = engine.ranks
        assert [(one.name, one.how, one.sha256) for one in rank] == [
            ("norm.weight", "held", AA),
            ("q_proj.weight", "multiplied", BB),
        ]
        assert [one.shape for one in rank] == [(2,), (2, 2)]

    def test_a_tensor_without_a_checksum_has_none(self, served: Served) -> None:
        served.checksums = {}
        [engine] = served.observer().observe([], 0).engines
        assert engine.ranks[0][0].sha256 is None

    def test_each_rank_is_told_apart_by_its_prefix(self, served: Served) -> None:
        served.contents = [{"prefix": f"tp{rank}:", "parameters": [HELD]} for rank in (0, 1)]
        served.checksums = {"tp0:norm.weight": AA, "tp1:norm.weight": CC}
        [engine] = served.observer().observe([], 0).engines
        assert [rank[0].sha256 for rank in engine.ranks] == [AA, CC]

    def test_a_ranks_slice_is_recorded_and_asked_for_once(self, served: Served) -> None:
        cut = {"dim": 0, "start": 2, "stop": 4}
        parts = [READ_BACK | {"cut": cut}, HELD]
        served.contents = [{"prefix": f"tp{rank}:", "parameters": parts} for rank in (0, 1)]
        engines = served.observer().observe([], 0).engines
        assert [rank[0].cut for rank in engines[0].ranks] == [Cut(**cut)] * 2
        assert [rank[1].cut for rank in engines[0].ranks] == [None] * 2
        assert slices_of(engines) == [{"name": "q_proj.weight", "cut": cut}]

    @pytest.mark.parametrize("cut", [{"dim": -1, "start": 0, "stop": 1}, {"dim": 0, "start": 0.5, "stop": 1}, [0, 1]])
    def test_a_slice_is_three_whole_numbers(self, served: Served, cut: Any) -> None:
        served.contents = [{"prefix": "tp0:", "parameters": [READ_BACK | {"cut": cut}]}]
        with pytest.raises(HttpBodyError):
            served.observer().observe([], 0)

    def test_an_engine_that_cannot_tell_is_recorded_as_such(self, served: Served) -> None:
        served.contents_status = 500
        [engine] = served.observer().observe([], 0).engines
        assert engine.ranks == ()

    def test_the_weights_are_destroyed_before_anything_is_looked_at(self, served: Served) -> None:
        destroyed = served.observer().destroy([PROMPT])
        assert served.called[0] == "smokestack_destroy"
        assert served.paths[0] == "/collective_rpc"
        assert len(destroyed.engines[0].probes) == 1

    def test_an_engine_that_refuses_to_be_destroyed_is_an_error(self, served: Served) -> None:
        served.contents_status = 500
        with pytest.raises(HttpStatusError):
            served.observer().destroy([PROMPT])

    @pytest.mark.parametrize("answer", [[], ["not today"], [None, {}], [None, None]])
    def test_an_order_is_obeyed_with_one_null_for_each_rank(self, served: Served, answer: list[Any]) -> None:
        served.obeyed = answer
        with pytest.raises(HttpBodyError):
            served.observer().destroy([PROMPT])

    @pytest.mark.parametrize("sha256", ["", "g" * 64, "a" * 63, 5])
    def test_a_digest_is_64_hexadecimal_digits(self, served: Served, sha256: Any) -> None:
        served.contents = [{"prefix": "tp0:", "parameters": [READ_BACK | {"sha256": sha256}]}]
        with pytest.raises(HttpBodyError):
            served.observer().observe([], 0)


class TestObservation:
    def test_labels_come_from_engine_and_sidecar_separately(self, served: Served) -> None:
        [engine] = served.observer().observe([], 3).engines
        assert (engine.engine_label, engine.sidecar_label) == ("3", "2")
        assert (engine.paused, engine.sidecar_paused) == (False, False)

    def test_a_probe_holds_the_greedy_tokens_and_the_prompt_under_teacher_forcing(self, served: Served) -> None:
        [engine] = served.observer().observe([PROMPT], 0).engines
        [probe] = engine.probes
        assert (probe.prompt_ids, probe.token_ids) == ((2, 41, 7), (5, 6))
        assert probe.logprobs == (-0.5, -0.25)
        assert probe.prompt_logprobs == (-5.5, -1.25)

    def test_a_probe_is_greedy_and_asks_for_the_prompts_logprobs(self, served: Served) -> None:
        served.observer(new_tokens=3, stop_token_ids=(9,)).observe([PROMPT], 0)
        sampling = served.asked[0]["sampling_params"]
        assert sampling["temperature"] == 0
        assert sampling["max_tokens"] == 3
        assert sampling["stop_token_ids"] == [9]
        # What makes vLLM skip its prefix cache, and so compute with the weights of now.
        assert "prompt_logprobs" in sampling

    def test_the_version_labels_of_a_probes_tokens_are_recorded(self, served: Served) -> None:
        span = {"version": "3", "start": 0, "end": 2}
        served.generated = {**served.generated, "choices": [CHOICE | {"weight_versions": [span]}]}
        [engine] = served.observer().observe([PROMPT], 3).engines
        assert [[part.model_dump() for part in spans or ()] for spans in engine.spans] == [[span]]

    @pytest.mark.parametrize(
        "spans",
        [
            pytest.param([], id="none"),
            pytest.param([(0, 1)], id="the last token has none"),
            pytest.param([(1, 2)], id="the first token has none"),
            pytest.param([(0, 2), (1, 2)], id="a token has two"),
            pytest.param([(0, 3)], id="more than the tokens"),
            pytest.param([(0, 0), (0, 2)], id="a span of no token"),
            pytest.param([(0, 3), (3, 2)], id="backwards"),
        ],
    )
    def test_version_labels_that_do_not_cover_a_probes_tokens_are_refused(
        self, served: Served, spans: list[tuple[int, int]]
    ) -> None:
        told = [{"version": "3", "start": start, "end": end} for start, end in spans]
        served.generated = {**served.generated, "choices": [CHOICE | {"weight_versions": told}]}
        with pytest.raises(ObservationError, match="do not cover") as caught:
            served.observer().observe([PROMPT], 3)
        assert caught.value.found == (" ".join(f"3[{start}:{end}]" for start, end in spans) or "no span")

    def test_the_labels_of_two_versions_may_cover_a_probes_tokens_together(self, served: Served) -> None:
        told = [{"version": "2", "start": 0, "end": 1}, {"version": "3", "start": 1, "end": 2}]
        served.generated = {**served.generated, "choices": [CHOICE | {"weight_versions": told}]}
        [engine] = served.observer().observe([PROMPT], 3).engines
        assert [part.version for part in engine.spans[0] or ()] == ["2", "3"]

    def test_an_engine_that_tells_no_version_labels_is_recorded_as_such(self, served: Served) -> None:
        [engine] = served.observer().observe([PROMPT], 3).engines
        assert engine.spans == (None,)

    def test_an_observation_begins_with_what_the_cache_holds(self, served: Served) -> None:
        [engine] = served.observer(cache_prompt=(4, 5, 6)).observe([PROMPT], 3).engines
        assert [body.get("prompt", body.get("token_ids")) for body in served.asked] == [[4, 5, 6]] * 3 + [PROMPT]
        assert engine.cache is not None
        assert engine.cache.model_dump() == {
            "prompt_tokens": 3,
            "first": {"cached_tokens": 0, "logprob": -1.5},
            "again": {"cached_tokens": 2, "logprob": -2.5},
            "reference": {"cached_tokens": 0, "logprob": -3.5},
        }

    def test_the_reference_asks_for_the_prompts_logprobs_so_that_no_cache_is_read(self, served: Served) -> None:
        served.observer(cache_prompt=(4, 5, 6)).observe([], 3)
        assert ["prompt_logprobs" in body for body in served.asked] == [False, False, True]
        assert all((body["temperature"], body["max_tokens"]) == (0, 1) for body in served.asked)

    def test_a_paused_engine_is_not_probed(self, served: Served) -> None:
        served.paused = True
        [engine] = served.observer(cache_prompt=(4, 5, 6)).observe([PROMPT], 0).engines
        assert engine.paused
        assert (engine.probes, engine.spans, engine.cache) == ((), (), None)
        assert served.asked == []

    def test_a_sidecar_without_an_answer_is_recorded_as_such(self, served: Served) -> None:
        served.sidecar_status = 503
        [engine] = served.observer().observe([PROMPT], 0).engines
        assert (engine.sidecar_label, engine.sidecar_paused) == (None, None)
        assert engine.engine_label == "3"

    def test_an_engine_that_refuses_a_probe_ends_the_observation(self, served: Served) -> None:
        served.generate_status = 500
        with pytest.raises(HttpStatusError):
            served.observer().observe([PROMPT], 0)


class TestWhileItAsks:
    """A stack that stands still does not hold up whoever observes it."""

    def test_an_interrupt_ends_an_observation_at_once(self, served: Served, hanging: threading.Event) -> None:
        clock = InterruptibleClock()
        observer = replace(served.observer(), clock=clock, request_s=30.0)
        threading.Timer(0.1, clock.interrupt.set).start()
        began = time.monotonic()
        with pytest.raises(Interrupted):
            observer.observe([PROMPT], 0)
        assert time.monotonic() - began < 2.0

    @pytest.mark.parametrize("ask", ["observe", "generate"])
    def test_a_process_that_ends_meanwhile_is_what_is_reported(
        self, served: Served, hanging: threading.Event, ask: str
    ) -> None:
        observer = replace(served.observer(), watch=ended, request_s=30.0)
        with pytest.raises(ServiceDiedError):
            observer.observe([PROMPT], 0) if ask == "observe" else observer.generate("after")

    def test_a_refused_generation_of_a_dead_engine_is_its_death(self, served: Served) -> None:
        served.chat_status = 500
        with pytest.raises(ServiceDiedError):
            replace(served.observer(), watch=ended).generate("after")

    def test_a_whole_observation_has_one_deadline(self, served: Served, hanging: threading.Event) -> None:
        with pytest.raises(ObservationError, match="did not end in time") as caught:
            replace(served.observer(), observe_s=0.2, request_s=30.0).observe([PROMPT], 3)
        assert caught.value.where == served.url
        assert "version 3" in caught.value.what


def ended() -> None:
    raise ServiceDiedError("engine-0 ended")


class TestHalfAnswers:
    @pytest.mark.parametrize(
        "prompt_logprobs",
        [None, PROMPT_LOGPROBS[:2], [None, None, PROMPT_LOGPROBS[2]], [None, {"2": {"logprob": -0.1}}, {}]],
    )
    def test_incomplete_prompt_logprobs_are_no_evidence(self, served: Served, prompt_logprobs: Any) -> None:
        served.generated = {"choices": [CHOICE], "prompt_logprobs": prompt_logprobs}
        with pytest.raises(ObservationError, match="prompt log-probabilities"):
            served.observer().observe([PROMPT], 0)

    def test_a_token_without_logprob_is_no_evidence(self, served: Served) -> None:
        choice = {**CHOICE, "token_ids": [5, 6, 7]}
        served.generated = {"choices": [choice], "prompt_logprobs": PROMPT_LOGPROBS}
        with pytest.raises(ObservationError, match="do not fit"):
            served.observer().observe([PROMPT], 0)


class TestGeneration:
    def test_a_completion_through_the_frontend_is_recorded(self, served: Served) -> None:
        event = served.observer().generate("after")
        assert (event.when, event.status, event.text, event.finish_reason) == ("after", 200, "7", "stop")

    def test_a_refusal_is_recorded_with_its_status_and_text(self, served: Served) -> None:
        served.chat_status = 503
        event = served.observer().generate("before")
        assert (event.status, event.completion_tokens) == (503, 0)
        assert "HTTP 503" in event.text

    def test_no_answer_is_recorded_as_status_zero(self) -> None:
        observer = Observer(Topology(()), "http://127.0.0.1:1", "tiny", SteadyClock())
        assert observer.generate("before").status == 0


class TestRequireUnpaused:
    def test_an_engine_that_serves_is_fine(self, served: Served) -> None:
        require_unpaused(served.observer())

    def test_an_engine_that_was_left_paused_is_named_with_what_to_do(self, served: Served) -> None:
        served.paused = True
        with pytest.raises(NotReadyError) as caught:
            require_unpaused(served.observer())
        assert served.url in str(caught.value)
        assert "/resume" in str(caught.value)

    def test_an_engine_that_does_not_tell_is_no_engine_that_serves(self, served: Served) -> None:
        served.paused = "perhaps"
        with pytest.raises(SmokestackError, match="is_paused"):
            require_unpaused(served.observer())


class TestFinishedRequests:
    def test_an_engine_is_asked_before_anything_else_and_after_all_else(self, served: Served) -> None:
        [engine] = served.observer().observe([PROMPT], 0).engines
        assert engine.finished is not None
        assert (engine.finished.before, engine.finished.after) == (7, 7)
        assert (served.paths[0], served.paths[-1], served.paths.count("/metrics")) == ("/metrics", "/metrics", 2)

    def test_an_engine_that_does_not_tell_has_no_count(self, served: Served) -> None:
        served.metrics_status = 404
        [engine] = served.observer().observe([PROMPT], 0).engines
        assert engine.finished is None


class TestPauses:
    @pytest.mark.parametrize("paused", [True, False])
    def test_each_engine_says_itself_whether_it_is_paused(self, served: Served, paused: bool) -> None:
        served.paused = paused
        assert pauses_of(served.observer(watch=_nobody_looks), 2.0) == {served.url: paused}

    def test_an_engine_that_does_not_answer_is_neither(self, served: Served, hanging: threading.Event) -> None:
        began = time.monotonic()
        assert pauses_of(served.observer(), 0.2) == {served.url: None}
        assert time.monotonic() - began < 2

    def test_nor_is_one_whose_answer_is_none(self, served: Served) -> None:
        served.paused = "perhaps"
        assert pauses_of(served.observer(), 2.0) == {served.url: None}

    def test_one_whose_answer_never_ends_takes_nothing_from_the_others(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even where no request of its own runs into its limit."""
        engines, over = iter([True]), threading.Event()

        def asked(_engine: EngineAdmin) -> bool:
            return next(engines, None) or over.wait(20)

        monkeypatch.setattr(EngineAdmin, "is_paused", asked)
        observer = served.observer()
        [worker] = observer.topology.workers
        both = replace(observer.topology, workers=(worker, replace(worker, admin_url="http://127.0.0.1:1")))
        told = pauses_of(replace(observer, topology=both), 0.0)
        over.set()
        assert told == {served.url: True, "http://127.0.0.1:1": None}


def _nobody_looks() -> None:
    raise AssertionError("the processes of a run that is ending are not looked at")


class TestRequireWorldSizes:
    def test_engines_that_say_what_discovery_says_are_fine(self, served: Served) -> None:
        require_world_sizes(served.observer())
        assert served.paths == ["/get_world_size"]

    def test_an_engine_that_says_otherwise_is_named(self, served: Served) -> None:
        served.world_size = 2
        with pytest.raises(NotReadyError, match="does not have the ranks") as caught:
            require_world_sizes(served.observer())
        assert (caught.value.expected, caught.value.found) == (f"1 at {served.url}", f"2 at {served.url}")


class TestRequireNoOpenUpdate:
    def test_an_engine_without_one_is_left_without_one(self, served: Served) -> None:
        require_no_open_update(served.observer())
        assert served.paths == ["/start_weight_update", "/finish_weight_update"]

    def test_an_update_that_was_never_finished_is_named(self, served: Served) -> None:
        served.start_answer = 500, {"error": {"message": "a weight update is already active"}}
        with pytest.raises(NotReadyError, match="never finished") as caught:
            require_no_open_update(served.observer())
        assert served.url in str(caught.value)

    def test_another_refusal_is_no_open_update(self, served: Served) -> None:
        served.start_answer = 500, {"error": {"message": "weight transfer is not configured"}}
        require_no_open_update(served.observer())


class TestLabels:
    def test_both_labels_and_the_state_are_asked_for_and_nothing_is_generated(self, served: Served) -> None:
        [told] = labels_of(served.observer(), 1.0)
        assert (told.engine_label, told.sidecar_label, told.paused) == ("3", "2", False)
        assert "/inference/v1/generate" not in served.paths

    def test_labels_of_two_moments_are_asked_for_again(self, served: Served) -> None:
        served.changing = ["1", "2", "2"]
        [told] = labels_of(served.observer(), 1.0)
        assert told.engine_label == "2"
        assert served.paths.count("/engine/control/get_weight_version") == 2

    def test_what_is_not_told_is_none(self, served: Served) -> None:
        served.sidecar_status = 503
        [told] = labels_of(served.observer(), 1.0)
        assert (told.engine_label, told.sidecar_label) == ("3", None)


class TestAlone:
    def test_an_engine_without_a_sidecar_is_asked_for_itself(self, served: Served) -> None:
        worker = Worker("engine", "engine-0", served.url, "", "tiny", 1, 0)
        alone = replace(served.observer(), topology=Topology((worker,)))
        [engine] = alone.observe([], 0).engines
        assert (engine.engine_label, engine.sidecar_label, engine.sidecar_paused) == ("3", None, None)
        [told] = labels_of(alone, 1.0)
        assert told.sidecar_label is None
        assert not [path for path in served.paths if path.startswith("/engine/control")]

    def test_timed_requests_go_to_frontend_and_engine_in_turns_or_to_the_engine_alone(self, served: Served) -> None:
        count = WARM_UP + TIMED
        [alone] = time_requests(served.observer(), PROMPT)
        assert (alone.via, len(alone.seconds), len(served.asked)) == ("engine", TIMED, count)
        other = served.url.replace("localhost", "127.0.0.1")
        assert other != served.url, "the same server under another name stands for the frontend"
        frontend, engine = time_requests(replace(served.observer(), frontend_url=other), PROMPT)
        assert (frontend.via, engine.via) == ("frontend", "engine")
        assert len(frontend.seconds) == len(engine.seconds) == TIMED
        assert len(served.asked) == 3 * count
        assert {(body["sampling_params"]["max_tokens"], tuple(body["token_ids"])) for body in served.asked} == {
            (1, tuple(PROMPT))
        }
