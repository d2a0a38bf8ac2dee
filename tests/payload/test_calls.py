"""What a hostile or broken peer may answer, and what becomes of it; and what our calls carry without showing it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from conftest import FakeEngine
from hypothesis import given, settings
from hypothesis import strategies as st
from smokestack_payload import calls, rollout
from smokestack_payload.calls import Carried, says_error
from smokestack_payload.refit.admin import AdminError, EngineAdmin, EngineFleet, FleetError
from smokestack_payload.refit.protocols import Call
from smokestack_payload.rollout import ROUTE, Prompt, Rollout, Sampler, parse_rollout
from smokestack_payload.settings import EngineAddress
from smokestack_payload.strictjson import decode
from smokestack_payload.tasks import DIGITS

from tests.hostile import Talk, endless, peer, saying, trickled_body, trickled_head
from tests.json_documents import JSON

KEY = "sk-very-secret-0123456789"
CARRIED = Carried({"Authorization": f"Bearer {KEY}"}, {"Authorization": "API key of the variable MY_KEY"})
MakeEngine = Callable[[], FakeEngine]


def post(url: str, path: str, timeout_s: float, carried: Carried = CARRIED) -> None:
    """One call, and its connection closed: a peer that ends an answer may leave it open for the next one."""
    with closing(EngineAdmin(EngineAddress(url, 1, 1), carried)) as admin:
        admin.post(Call(path), timeout_s)


class TestAdmin:
    def test_an_endless_body_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("smokestack_payload.refit.admin.MAX_BODY_BYTES", 10_000)
        with peer(endless) as url, pytest.raises(AdminError, match="more than 10000 bytes"):
            post(url, "/pause", 5.0)

    def test_a_body_that_trickles_ends_at_the_limit(self) -> None:
        begun = time.monotonic()
        with peer(trickled_body) as url, pytest.raises(AdminError, match="ReadTimeout"):
            post(url, "/pause", 0.2)
        assert time.monotonic() - begun < 2

    def test_a_head_that_trickles_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("smokestack_payload.refit.admin.LAST_WORDS_S", 0.1)
        begun = time.monotonic()
        with peer(trickled_head) as url, closing(EngineFleet([EngineAddress(url, 1, 1)], CARRIED)) as fleet:
            fleet.begin("1", 0.2)
            with pytest.raises(FleetError, match="no whole answer"):
                fleet.resume()
        assert time.monotonic() - begun < 2

    def test_a_redirect_is_a_failure_and_the_key_stays_here(self, make_engine: MakeEngine) -> None:
        elsewhere = make_engine()
        redirect = saying(b"", status="307 X", more=f"Location: {elsewhere.url}/resume\r\n")
        with peer(redirect) as url, pytest.raises(AdminError, match="307"):
            post(url, "/resume", 2.0)
        assert elsewhere.calls == []

    @pytest.mark.parametrize(
        "answer", [{"success": False}, {"error": "no"}, {"status": "error"}, {"status": 500}, {"error": {"code": 1}}]
    )
    def test_a_success_that_says_it_is_none_is_a_failure(self, make_engine: MakeEngine, answer: Any) -> None:
        engine = make_engine()
        engine.on("/resume", lambda _: (200, answer))
        with pytest.raises(AdminError, match="refused"):
            post(engine.url, "/resume", 2.0)

    @pytest.mark.parametrize("body", [b"", b"OK", b"<html>welcome</html>", b"null", b"[]", b"true", b'{"success": tr'])
    def test_a_success_without_a_json_object_is_nobodys_of_whom_it_is_asked(self, body: bytes) -> None:
        with peer(saying(body)) as url, pytest.raises(AdminError, match="no answer of an engine") as caught:
            post(url, "/resume", 2.0)
        assert caught.value.status == 200

    def test_a_servers_text_is_cleaned_and_holds_no_key(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        engine.on("/resume", lambda _: (500, f"\x1b[31mBearer {KEY}\x1b[0m\x07 was\r\nsent\u202e"))
        with pytest.raises(AdminError) as caught:
            post(engine.url, "/resume", 2.0)
        assert KEY not in str(caught.value)
        assert "[concealed]" in caught.value.text
        assert caught.value.text.isprintable()

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_key_that_is_not_accepted_is_named_by_its_source(self, make_engine: MakeEngine, status: int) -> None:
        engine = make_engine()
        engine.fail("/resume", status, "Unauthorized")
        with pytest.raises(AdminError) as caught:
            post(engine.url, "/resume", 2.0)
        assert "not accepted: Authorization: API key of the variable MY_KEY" in caught.value.text
        with pytest.raises(AdminError, match="no API key was sent"):
            post(engine.url, "/resume", 2.0, Carried())


class TestRollouts:
    def sampler(self, url: str, **changes: Any) -> Sampler:
        values: dict[str, Any] = {
            "frontend_url": url,
            "model": "tiny",
            "vocab_size": 261,
            "max_new_tokens": 4,
            "stop_token_ids": [257],
            "request_s": 0.3,
            "total_s": 5.0,
            "carried": CARRIED,
        }
        return Sampler(**{**values, **changes})

    def failed(self, url: str, **changes: Any) -> str:
        prompts = [Prompt(DIGITS.problem(1, 2), [1, 2])]
        with pytest.raises(rollout.RolloutError) as caught:
            self.sampler(url, **changes).sample(prompts, 1, seed=0)
        return str(caught.value.found)

    @pytest.mark.parametrize("talk", [trickled_body, trickled_head])
    def test_slow_bytes_end_at_the_requests_limit(self, talk: Talk) -> None:
        with peer(talk) as url:
            assert "ReadTimeout" in self.failed(url)

    def test_an_endless_body_is_one_failed_rollout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rollout, "MAX_BODY_BYTES", 10_000)
        with peer(endless) as url:
            assert "more than 10000 bytes" in self.failed(url, request_s=5.0)

    def test_a_key_that_is_not_accepted_is_named_and_not_shown(self, make_engine: MakeEngine) -> None:
        frontend = make_engine()
        frontend.fail(ROUTE, 401, f"bad key {KEY}")
        found = self.failed(frontend.url)
        assert "API key of the variable MY_KEY" in found
        assert KEY not in found


def answer(token_ids: Any, logprobs: list[Any]) -> Any:
    return {"choices": [{"token_ids": token_ids, "logprobs": {"content": [{"logprob": x} for x in logprobs]}}]}


@pytest.mark.parametrize(
    ("token_ids", "logprobs"),
    [
        ([1], [math.nan]),
        ([1], [-math.inf]),
        ([1], [0.5]),
        ([1], [True]),
        ([1], ["-0.5"]),
        ([1], [-(10**400)]),
        ([True], [-0.5]),
        ([1.0], [-0.5]),
        (["1"], [-0.5]),
        ([-1], [-0.5]),
        ([261], [-0.5]),
        ([10**30], [-0.5]),
        ("1", [-0.5]),
    ],
)
def test_numbers_out_of_range_are_no_rollout(token_ids: Any, logprobs: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_rollout(answer(token_ids, logprobs), 261)


@given(JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_is_a_sound_rollout_or_a_value_error(document: Any) -> None:
    for candidate in (document, {"choices": [document]}, {"choices": [{"token_ids": document, "logprobs": document}]}):
        try:
            found = parse_rollout(candidate, 261)
        except ValueError:
            continue
        assert len(found.token_ids) == len(found.logprobs) > 0


@given(
    st.lists(
        st.tuples(st.integers(0, 260), st.floats(-1e5, 0, allow_nan=False)),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=50, deadline=None)
def test_a_sound_answer_is_read_as_it_was_sent(pairs: list[tuple[int, float]]) -> None:
    tokens, logprobs = [token for token, _ in pairs], [value for _, value in pairs]
    body = json.dumps(answer(tokens, logprobs)).encode()
    assert parse_rollout(decode(body), 261) == Rollout(tokens, logprobs)


@pytest.mark.parametrize(
    "answer",
    [None, [], "error", {}, {"success": True}, {"status": "ok"}, {"status": 200}, {"status": True}, {"error": None}],
)
def test_what_is_no_error_is_not_taken_for_one(answer: Any) -> None:
    assert says_error(answer) is False


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text_is_shown_on_one_clean_line(text: str) -> None:
    shown = CARRIED.shown(text + KEY + text, 300)
    assert shown.isprintable()
    assert len(shown) <= 300
    assert KEY not in shown


def test_what_is_carried_is_not_in_its_text() -> None:
    assert KEY not in repr(CARRIED)
    assert calls.STRAIGHT.items() <= CARRIED.all().items()
