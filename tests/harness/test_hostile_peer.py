"""A hostile or broken peer: every question to it ends, in time and size, with a clean account of what it said."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from harness import answers, calling
from harness.admin import EngineAdmin, FrontendClient, SidecarControl
from harness.calling import HttpBodyError, HttpClient, HttpStatusError, whole_lines
from harness.cli import main
from harness.credentials import Credentials
from harness.discovery import DiscoveryProbe
from harness.errors import SmokestackError
from harness.evidence import Check
from harness.metrics import finished_requests
from harness.plaintext import plain, printable
from harness.probes import Fatal, HttpProbe, JsonProbe, Pending, Ready
from harness.services.engine import judge_published
from harness.services.etcd import judge_health
from harness.topology import Expectation, Snapshot
from harness.workers import WorkerRecord, classify, normalise_url
from tests import hostile
from tests.harness.fakes import worker, workers_answer
from tests.hostile import Talk, peer, saying, saying_json
from tests.json_documents import BODIES, JSON

ONE = Expectation("tiny", 1)
LIMIT_S = 0.2
SOON_S = 1.5
KEY = "sk-very-secret-0123456789"
GIVEN = Credentials(KEY, "MY_KEY")
UGLY = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \r\n\u202egnp.exe \x00 end"
SLOW: list[Talk] = [
    hostile.trickled_body,
    hostile.trickled_body_to_the_end_of_the_connection,
    hostile.trickled_head,
    hostile.interim_answers,
    hostile.silent,
]
ENDLESS: list[Talk] = [hostile.endless, hostile.endless_chunks]
BROKEN: list[Talk] = [hostile.cut_off, hostile.no_http, hostile.endless_head]


def name_of(talk: Talk) -> str:
    return talk.__name__


def http(url: str, limit_s: float = 10.0) -> HttpClient:
    return HttpClient(url, limit_s, credentials=GIVEN)


class TestTimeAndSize:
    @pytest.mark.parametrize("talk", SLOW, ids=name_of)
    def test_an_admin_call_ends_at_its_limit(self, talk: Talk) -> None:
        began = time.monotonic()
        with peer(talk) as url, pytest.raises(HttpStatusError, match="no answer") as caught:
            EngineAdmin(http(url, LIMIT_S)).is_paused()
        assert time.monotonic() - began < SOON_S
        assert caught.value.found == f"ReadTimeout: the answer was not complete after {LIMIT_S:g} s"

    @pytest.mark.parametrize("talk", SLOW, ids=name_of)
    def test_discovery_and_probes_ask_again_in_time(self, talk: Talk) -> None:
        began = time.monotonic()
        with peer(talk) as url:
            assert isinstance(DiscoveryProbe(url, ONE, LIMIT_S).check(), Pending)
            assert isinstance(HttpProbe("health", url, timeout_s=LIMIT_S).check(), Pending)
        assert time.monotonic() - began < 2 * SOON_S

    @pytest.mark.parametrize("talk", ENDLESS, ids=name_of)
    def test_a_body_without_end_is_given_up(self, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calling, "MAX_BODY_BYTES", 100_000)
        with peer(talk) as url, pytest.raises(HttpStatusError, match="too much"):
            EngineAdmin(HttpClient(url, 10, credentials=GIVEN)).is_paused()

    @pytest.mark.parametrize("talk", ENDLESS, ids=name_of)
    def test_discovery_does_not_ask_an_endless_peer_again(self, talk: Talk) -> None:
        with peer(talk) as url:
            assert isinstance(DiscoveryProbe(url, ONE, 10).check(), Fatal)
            assert isinstance(JsonProbe("models", url, lambda _: Ready(), timeout_s=10).check(), Fatal)

    @pytest.mark.parametrize("talk", BROKEN, ids=name_of)
    def test_what_is_no_answer_is_said_to_be_none(self, talk: Talk) -> None:
        with peer(talk) as url:
            with pytest.raises(HttpStatusError, match="no answer") as caught:
                EngineAdmin(http(url)).is_paused()
            assert caught.value.status is None
            assert isinstance(DiscoveryProbe(url, ONE, 10).check(), Pending)

    def test_a_compressed_body_is_not_unpacked(self) -> None:
        bomb = gzip.compress(b" " * 5_000_000)
        with peer(saying(bomb, more="Content-Encoding: gzip\r\n")) as url, pytest.raises(HttpBodyError):
            EngineAdmin(http(url)).is_paused()


class TestWhereItLeads:
    @pytest.mark.parametrize("status", ["301 X", "302 X", "307 X", "308 X"])
    def test_a_redirect_to_another_host_is_not_followed(self, status: str) -> None:
        asked: list[bytes] = []

        def elsewhere(write: hostile.Write) -> None:
            asked.append(b"asked")
            saying_json({"is_paused": True})(write)

        with peer(elsewhere) as other, peer(saying(b"", status=status, more=f"Location: {other}/is_paused\r\n")) as url:
            with pytest.raises(HttpStatusError) as caught:
                EngineAdmin(http(url)).is_paused()
            assert caught.value.status == int(status[:3])
            assert isinstance(DiscoveryProbe(url, ONE).check(), Fatal)
            assert isinstance(HttpProbe("health", url).check(), Pending)
        assert asked == []

    @pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
    def test_no_proxy_sees_a_call(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
        with peer(saying_json({"is_paused": True})) as url:
            assert EngineAdmin(http(url)).is_paused() is True

    @pytest.mark.parametrize(
        "url",
        ["ftp://h/", "http://", "//h/", "http://user:pass@h/", "http://h:99999/", "javascript:x", "http://\x00/", "h"],
    )
    def test_a_workers_address_that_is_none_ends_discovery(self, url: str) -> None:
        found = classify(200, workers_answer([worker(0, admin_base_url=url)]), ONE)
        assert isinstance(found, Fatal)
        assert "pass" not in found.reason


class TestWhatItSays:
    def test_a_text_is_cleaned_wherever_it_is_quoted(self) -> None:
        with peer(saying(UGLY.encode(), status="500 X")) as url:
            with pytest.raises(HttpStatusError) as caught:
                EngineAdmin(http(url)).is_paused()
            probes = [DiscoveryProbe(url, ONE).check(), HttpProbe("health", url).check()]
        reasons = [one.reason for one in probes if isinstance(one, (Pending, Fatal))]
        for text in (str(caught.value.found), *reasons):
            assert text.isprintable(), text
            assert "red" in text
            assert "[31m" not in text
            assert "title" not in text

    @pytest.mark.parametrize("content_type", ["text/html", "image/png", "application/json; charset=utf-16", ""])
    def test_an_answer_is_what_it_holds_whatever_type_it_names(self, content_type: str) -> None:
        with peer(saying_json({"is_paused": True}, content_type=content_type)) as url:
            assert EngineAdmin(http(url)).is_paused() is True
        with peer(saying(b"<html>login</html>", content_type=content_type)) as url:
            with pytest.raises(HttpBodyError) as caught:
                EngineAdmin(http(url)).is_paused()
            assert caught.value.found == "<html>login</html>"
            assert isinstance(DiscoveryProbe(url, ONE).check(), Fatal)

    @pytest.mark.parametrize(
        "said",
        [{"error": "no"}, {"error": {"code": 500}}, {"status": "error"}, {"status": 503}, {"success": False}],
    )
    def test_a_200_that_says_it_is_an_error_is_one(self, said: dict[str, Any]) -> None:
        with peer(saying_json({"weight_version": "3", "is_paused": False, **said})) as url:
            engine, sidecar = EngineAdmin(http(url)), SidecarControl(http(url))
            for ask in (engine.weight_version, engine.is_paused, sidecar.weight_version, sidecar.is_paused):
                with pytest.raises(HttpBodyError) as caught:
                    ask()
                assert caught.value.expected == "an answer that is no error"

    @pytest.mark.parametrize(
        ("ask", "said"),
        [
            (lambda one: EngineAdmin(one).weight_version(), {"weight_version": True}),
            (lambda one: EngineAdmin(one).weight_version(), {"weight_version": 1.0}),
            (lambda one: EngineAdmin(one).weight_version(), {"weight_version": "x" * 300}),
            (lambda one: EngineAdmin(one).is_paused(), {"is_paused": "false"}),
            (lambda one: EngineAdmin(one).is_paused(), {"is_paused": 0}),
            (lambda one: EngineAdmin(one).world_size(), {"world_size": 0}),
            (lambda one: EngineAdmin(one).world_size(), {"world_size": 10**30}),
            (lambda one: EngineAdmin(one).world_size(), {"world_size": "1"}),
            (lambda one: FrontendClient(one).models(), {"data": {"id": "tiny"}}),
            (lambda one: FrontendClient(one).models(), [{"id": "tiny"}]),
            (lambda one: EngineAdmin(one).generate("tiny", [1], {}), {"choices": []}),
            (lambda one: EngineAdmin(one).generate("tiny", [1], {}), {"choices": [{"token_ids": [-1]}]}),
            (lambda one: EngineAdmin(one).generate("tiny", [1], {}), {"choices": [{"token_ids": [True]}]}),
            (lambda one: EngineAdmin(one).generate("tiny", [1], {}), {"choices": [{"token_ids": [2**40]}]}),
            (lambda one: FrontendClient(one).chat("tiny", "x", max_tokens=1), {"choices": [{"message": {}}]}),
        ],
    )
    def test_wrong_shapes_and_numbers_that_cannot_be_are_refused(
        self, ask: Callable[[HttpClient], object], said: Any
    ) -> None:
        with peer(saying_json(said)) as url, pytest.raises(HttpBodyError, match="unexpected"):
            ask(http(url))

    @pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1e999", b"0.5", b"null", b'"-1"x'])
    def test_a_log_probability_that_cannot_be_is_refused(self, value: bytes) -> None:
        body = b'{"choices": [{"token_ids": [1], "logprobs": {"content": [{"logprob": ' + value + b"}]}}]}"
        with peer(saying(body)) as url, pytest.raises(HttpBodyError):
            EngineAdmin(http(url)).generate("tiny", [1], {})

    @pytest.mark.parametrize(
        "body", [b'{"weight_version": "1", "weight_version": "2"}', b"[" * 200_000, b'{"a":' * 200_000, b"\xff\xfe{}"]
    )
    def test_json_that_can_be_read_in_two_ways_or_not_at_all_is_refused(self, body: bytes) -> None:
        with peer(saying(body)) as url:
            with pytest.raises(HttpBodyError):
                EngineAdmin(http(url)).weight_version()
            assert isinstance(DiscoveryProbe(url, ONE, 5).check(), Fatal)
            assert isinstance(JsonProbe("models", url, lambda _: Ready()).check(), Pending)

    @pytest.mark.parametrize(
        "changes",
        [
            {"instance_id": -1},
            {"instance_id": 2**64},
            {"instance_id": 1.0},
            {"instance_id": True},
            {"instance_id": "a\x1b[2Jb"},
            {"component": "x" * 300},
            {"component": "a\nb"},
            {"world_size": 0},
            {"world_size": 10**9},
            {"world_size": "1"},
            {"routes": ["x"] * 300},
            {"routes": {"a": 1}},
            {"system_url": "http://h/" + "x" * 4000},
        ],
    )
    def test_a_worker_that_cannot_be_ends_discovery(self, changes: dict[str, Any]) -> None:
        found = classify(200, workers_answer([worker(0, **changes)]), ONE)
        assert isinstance(found, Fatal)
        assert found.reason.isprintable()


class TestKey:
    @pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
    def test_a_key_that_is_not_accepted_is_named_by_its_variable(self, status: str) -> None:
        with peer(saying_json({"error": f"{KEY} is wrong"}, status=status)) as url:
            with pytest.raises(HttpStatusError) as caught:
                FrontendClient(http(url)).models()
            probes = [
                DiscoveryProbe(url, ONE, credentials=GIVEN).check(),
                HttpProbe("health", url, credentials=GIVEN).check(),
                JsonProbe("models", url, lambda _: Ready(), credentials=GIVEN).check(),
            ]
        assert caught.value.hint == "the API key of the variable MY_KEY was sent and not accepted"
        assert KEY not in str(caught.value)
        for found in probes:
            assert isinstance(found, Fatal)
            assert "the API key of the variable MY_KEY was sent and not accepted" in found.reason
            assert KEY not in found.reason

    def test_a_server_that_wants_a_key_where_none_was_given_is_told_apart(self) -> None:
        with peer(saying(b"", status="401 X")) as url:
            found = HttpProbe("models", url).check()
        assert isinstance(found, Fatal)
        assert found.reason.endswith("no API key was sent: --api-key-env NAME sends that of a variable")


NAMES = st.sampled_from(sorted(WorkerRecord.model_fields))
MODELS: list[type[BaseModel]] = [
    model
    for model in vars(answers).values()
    if isinstance(model, type) and issubclass(model, answers.Served) and model is not answers.Served
]
SAMPLES = st.from_regex(r'(vllm:request_success_total(\{x="y"\})? \S{1,12}\n){0,3}', fullmatch=True)
QUICK = settings(max_examples=100, deadline=None)


@QUICK
@given(st.integers(100, 599), BODIES)
def test_any_answer_of_discovery_is_judged_and_its_words_are_clean(status: int, body: bytes) -> None:
    found = classify(status, body, ONE)
    assert isinstance(found, (Pending, Fatal))
    assert found.reason.isprintable()
    assert len(found.reason) < 2000


@QUICK
@given(st.lists(st.dictionaries(NAMES, JSON, max_size=4), max_size=3), st.integers(1, 4))
def test_records_with_anything_in_them_are_refused_or_a_sound_topology(
    changes: list[dict[str, Any]], size: int
) -> None:
    workers = [{**worker(index), **change} for index, change in enumerate(changes)]
    found = classify(200, workers_answer(workers), Expectation("tiny", size))
    if not isinstance(found, Snapshot):
        assert found.reason.isprintable()
        return
    listed = found.topology.workers
    assert found.topology.world_size == size
    assert len({one.admin_url for one in listed}) == len({one.system_url for one in listed}) == len(listed)
    assert all(one.model == "tiny" and one.component.isprintable() for one in listed)


@QUICK
@given(st.sampled_from(MODELS), BODIES)
def test_any_body_is_an_answer_or_an_error_of_the_run(model: type[BaseModel], body: bytes) -> None:
    try:
        found = HttpClient("http://h", credentials=GIVEN).parse("/x", model, body)
    except SmokestackError as error:
        assert str(error.found).isprintable()
        assert str(error.expected).isprintable()
        return
    assert isinstance(found, model)


def test_every_answer_that_is_parsed_is_among_them() -> None:
    assert {answers.Generated, answers.Contents, answers.CompletionAnswer, answers.TextPart} <= set(MODELS)


@QUICK
@given(st.text(max_size=200) | SAMPLES)
def test_any_metrics_are_a_number_of_requests_or_none(text: str) -> None:
    found = finished_requests(text)
    assert found is None or 0 <= found < 2**53


@QUICK
@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"data: {}\n\n", b"\n", b"data: [DONE]"])))
def test_a_stream_in_any_pieces_is_the_same_lines(pieces: list[bytes]) -> None:
    assert b"\n".join(whole_lines(iter(pieces), "http://h")) == b"".join(pieces)


@QUICK
@given(st.text(max_size=40) | st.sampled_from(["http://", "https://h:1/v1/", "http://h/v1", "http://u@h"]))
def test_any_address_is_normalised_once_and_for_all_or_refused(text: str) -> None:
    found = classify(200, workers_answer([worker(0, admin_base_url=text or "x")]), ONE)
    if isinstance(found, Snapshot):
        [one] = found.topology.workers
        assert normalise_url(one.admin_url) == one.admin_url


@QUICK
@given(st.text(max_size=100))
def test_what_is_shown_has_no_character_that_commands_a_terminal(text: str) -> None:
    assert printable(text, 50).isprintable()
    for character in plain(text):
        assert character in "\t\n" or ord(character) >= 32
        assert not 0x7F <= ord(character) <= 0x9F
        assert character not in "\u202e\u2066\u2028"


@pytest.mark.parametrize(
    "outcome",
    [
        judge_published({"data": [{"id": UGLY * 1000}]}, "tiny"),
        judge_health({"health": UGLY * 1000, "reason": UGLY * 1000}),
        classify(200, workers_answer([worker(i, routes=["x" * 250] * i) for i in range(1, 40)]), ONE),
        classify(200, workers_answer([worker(i) for i in range(1000)]), ONE),
    ],
    ids=["models", "health", "routes", "ranks"],
)
def test_a_reason_is_short_and_clean_however_much_was_sent(outcome: object) -> None:
    assert isinstance(outcome, (Pending, Fatal))
    assert outcome.reason.isprintable()
    assert len(outcome.reason) < 1000


def test_a_services_log_commands_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "engine-0.log").write_text(f"{UGLY}\nnext\n")
    assert main(["logs", "--run-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed == plain(printed)
    assert "engine-0 | next" in printed


def test_the_verdict_holds_no_control_characters() -> None:
    check = Check(id="x.y", status="fail", expected=UGLY, found=UGLY, why="because")
    assert check.found == plain(UGLY)
    assert check.expected == plain(UGLY)
