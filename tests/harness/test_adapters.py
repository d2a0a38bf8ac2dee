"""A run whose engines take an adapter: what it has to show, each way to fail, and when it is not asked."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.evidence import CHECKS, WITH_ADAPTERS, Check, Expectation, evaluate
from harness.report.verdict import judge_run
from tests.harness.event_factory import Fields, edited, failure, passing_run, run_config, the
from tests.harness.evidence_edits import Edit, drop, move_to_start, red

CHECK = "generation.lora-adapter"
CONFIG = run_config(lora=True)
WANT = Expectation.of(CONFIG)


def judged(edit: Edit = lambda run: None) -> dict[str, Check]:
    return {check.id: check for check in evaluate(edited(passing_run(CONFIG), edit), WANT)}


def put(**values: Any) -> Edit:
    return lambda run: the(run, "adapter.observed")["engines"][0].update(values)


def put_loaded(**values: Any) -> Edit:
    return lambda run: the(run, "adapter.observed")["engines"][0]["loaded"][0].update(values)


REFUSED = "POST http://127.0.0.1:8002/engine/update/load_lora failed: HTTP 500: add_lora: Expected `bool`"


def as_base(run: list[Fields]) -> None:
    """Trainer and engine both without any adapter."""
    [engine] = the(run, "adapter.observed")["engines"]
    engine["loaded"] = engine["unloaded"]
    for ours, theirs in zip(the(run, "adapter")["probes"], engine["unloaded"], strict=True):
        ours.update(theirs)


def stays_loaded(run: list[Fields]) -> None:
    [engine] = the(run, "adapter.observed")["engines"]
    engine["unloaded"] = engine["loaded"]


def refused(run: list[Fields]) -> None:
    why = "its worker does not advertise update/load_lora and update/unload_lora"
    the(run, "adapter.observed")["engines"][0].update(loaded=[], unloaded=[], afterwards=None, refusal=why)


def test_a_run_with_an_adapter_passes_one_check_more() -> None:
    checks = judged()
    assert list(checks) == [*CHECKS, *WITH_ADAPTERS]
    assert {check.status for check in checks.values()} == {"pass"}
    assert checks[CHECK].found == "|diff| <= 1.0e-06 with it, then exactly the base's"


def test_other_runs_are_not_asked() -> None:
    checks = evaluate(passing_run(), Expectation.of(run_config()))
    assert CHECK not in [check.id for check in checks]


WAYS: dict[str, Edit] = {
    "another adapter": put_loaded(prompt_logprobs=[-3.0, -2.0, -1.5]),
    "other tokens": put_loaded(token_ids=[1, 0]),
    "no number": put_loaded(prompt_logprobs=[math.nan, -2.0, -1.5]),
    "no difference": as_base,
    "something stays": stays_loaded,
    "its name stays": put(afterwards=200),
    "the engine fails at its name": put(afterwards=500),
    "nobody asked for its name": put(afterwards=None),
    "never loaded": put(loaded=[]),
    "never unloaded": put(unloaded=[]),
    "another engine": put(admin_url="http://127.0.0.1:9"),
    "no engine": lambda run: the(run, "adapter.observed").update(engines=[]),
    "no account of the trainer": drop("adapter"),
    "no observation": drop("adapter.observed"),
    "the load was refused": put(loaded=[], unloaded=[], afterwards=None, failed=REFUSED),
    "looked at too early": move_to_start("adapter.observed"),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_fail_turns_this_check_red_and_no_other(way: str) -> None:
    assert red(judged(WAYS[way])) == {CHECK}


def test_an_engine_that_offers_no_adapters_is_skipped_with_the_reason_and_not_passed() -> None:
    check = judged(refused)[CHECK]
    assert (check.status, check.found) == ("skip", "not tried")
    assert check.why == (
        "no engine offers adapters: its worker does not advertise update/load_lora and update/unload_lora"
    )
    assert judge_run(edited(passing_run(CONFIG), refused), CONFIG).verdict.verdict == "pass"


def test_a_load_that_fails_is_told_by_the_check_with_status_and_answer() -> None:
    check = judged(WAYS["the load was refused"])[CHECK]
    assert check.found == f"engine-0: {REFUSED}"


def test_one_engine_of_two_that_offers_none_is_no_reason_to_skip() -> None:
    config = run_config(lora=True, tensor_parallel=(1, 1))
    run = edited(passing_run(config), one_refuses)
    checks = {check.id: check for check in evaluate(run, Expectation.of(config))}
    assert "engine-0 offers no adapters, others do" in checks[CHECK].found
    assert checks[CHECK].status == "fail"


def one_refuses(run: list[Fields]) -> None:
    the(run, "adapter.observed")["engines"][0].update(loaded=[], unloaded=[], afterwards=None, refusal="not advertised")


def test_a_run_that_ended_before_is_not_judged_by_it() -> None:
    run = [event for event in passing_run(CONFIG) if event["kind"] not in {"adapter", "adapter.observed"}]
    checks = {check.id: check for check in evaluate([*run, failure().fields()], WANT)}
    assert checks[CHECK].status == "skip"
