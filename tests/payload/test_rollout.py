"""Rollouts: what is asked, what is read, and what happens when some or all requests fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import FakeEngine
from smokestack_payload.errors import RolloutError
from smokestack_payload.rollout import OPEN_PROMPT_TOKENS, ROUTE, Prompt, Rollout, Sampler, parse_rollout
from smokestack_payload.step import _answer
from smokestack_payload.tasks import DIGITS

MakeEngine = Callable[[], FakeEngine]
PROMPTS = [Prompt(DIGITS.problem(1, 2), [259, 18, 260]), Prompt(DIGITS.problem(3, 4), [259, 20, 260])]


def answer(token_ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    """As the frontend answers: the alternatives beside a token may be one more than asked for."""
    content = [
        {
            "token": f"token_id:{token}",
            "logprob": logprob,
            "top_logprobs": [
                {"token": "token_id:9", "logprob": -0.1},
                {"token": f"token_id:{token}", "logprob": logprob},
            ],
        }
        for token, logprob in zip(token_ids, logprobs, strict=True)
    ]
    choice = {"index": 0, "token_ids": token_ids, "logprobs": {"content": content}, "finish_reason": "stop"}
    return {"request_id": "x", "choices": [choice]}


def sampler(url: str, **changes: Any) -> Sampler:
    values = {
        "frontend_url": url,
        "model": "tiny",
        "vocab_size": 261,
        "max_new_tokens": 4,
        "stop_token_ids": [257],
        "request_s": 5.0,
        "total_s": 10.0,
    }
    return Sampler(**{**values, **changes})


def test_a_step_asks_for_every_sample_with_a_seed_of_its_own(make_engine: MakeEngine) -> None:
    frontend = make_engine()
    frontend.on(ROUTE, lambda _: (200, answer([23, 257], [-0.5, -0.25])))
    batch = sampler(frontend.url).sample(PROMPTS, 3, seed=100)
    assert batch.groups == [[Rollout([23, 257], [-0.5, -0.25])] * 3] * 2
    assert batch.errored == 0
    assert all(rollout and 0 < rollout.seconds < 5 for group in batch.groups for rollout in group)
    bodies = [body for _, body in frontend.calls]
    assert sorted(body["sampling_params"]["seed"] for body in bodies) == list(range(100, 106))
    assert sorted(body["token_ids"] for body in bodies) == sorted([prompt.ids for prompt in PROMPTS] * 3)
    for body in bodies:
        assert body["model"] == "tiny"
        params = body["sampling_params"]
        assert (params["max_tokens"], params["temperature"], params["top_k"]) == (4, 1.0, 261)
        assert params["stop_token_ids"] == [257]


def test_a_few_failures_are_counted_by_reason_and_leave_gaps(make_engine: MakeEngine) -> None:
    frontend = make_engine()

    def respond(body: Any) -> tuple[int, Any]:
        if body["sampling_params"]["seed"] == 1:
            return 503, {"error": "no worker"}
        return 200, answer([23], [-0.5])

    frontend.on(ROUTE, respond)
    batch = sampler(frontend.url).sample(PROMPTS, 3, seed=0)
    assert batch.errored == 1
    assert batch.groups[0][1] is None
    assert [rollout is None for group in batch.groups for rollout in group].count(True) == 1
    assert next(iter(batch.errors)).startswith("status 503")


def test_too_many_failures_end_the_step_with_the_servers_words(make_engine: MakeEngine) -> None:
    frontend = make_engine()
    frontend.fail(ROUTE, 500, "engine core reported fatal failure")
    with pytest.raises(RolloutError) as caught:
        sampler(frontend.url).sample(PROMPTS, 2, seed=0)
    assert "4 of 4 rollouts failed" in caught.value.what
    assert "engine core reported fatal failure" in str(caught.value.found)


def test_a_frontend_that_never_answers_ends_at_the_steps_limit(make_engine: MakeEngine) -> None:
    frontend = make_engine()
    frontend.hang(ROUTE)
    with pytest.raises(RolloutError, match="did not end in time"):
        sampler(frontend.url, total_s=0.3).sample(PROMPTS, 1, seed=0)


def test_a_request_that_never_ends_is_one_failed_rollout(make_engine: MakeEngine) -> None:
    frontend = make_engine()
    frontend.hang(ROUTE)
    with pytest.raises(RolloutError) as caught:
        sampler(frontend.url, request_s=0.3).sample(PROMPTS, 1, seed=0)
    assert "ReadTimeout" in str(caught.value.found)


def test_long_prompts_are_not_all_under_way_at_once(make_engine: MakeEngine) -> None:
    frontend = make_engine()
    lock, open_now, most = threading.Lock(), [0], [0]

    def respond(_: Any) -> tuple[int, Any]:
        with lock:
            open_now[0] += 1
            most[0] = max(most[0], open_now[0])
        frontend.released.wait(timeout=0.02)
        with lock:
            open_now[0] -= 1
        return 200, answer([23], [-0.5])

    frontend.on(ROUTE, respond)
    long = Prompt(DIGITS.problem(1, 2), [1] * (OPEN_PROMPT_TOKENS // 3))
    sampler(frontend.url).sample([long], 9, seed=0)
    assert most[0] <= 3


@pytest.mark.parametrize(
    "broken",
    [
        {"choices": []},
        {"choices": [{"token_ids": [], "logprobs": {"content": []}}]},
        {"choices": [{"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}}]},
        {"choices": [{"token_ids": [1], "logprobs": None}]},
    ],
)
def test_an_answer_without_one_logprob_a_token_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_rollout(broken, 261)


def test_the_same_tokens_have_the_same_name_and_others_another() -> None:
    names = [_answer(Rollout(tokens, [-0.5] * len(tokens))) for tokens in ([1, 23], [1, 23], [12, 3], [1])]
    digests = [name["tokens_sha256"] for name in names if name is not None]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert _answer(None) is None
