"""Every check passes on a sound run; what was not recorded, not reached or not believable passes none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import events
from harness.evidence import CHECKS, Expectation
from tests.harness.event_factory import (
    NORM,
    Fields,
    edited,
    failure,
    observed,
    passing_run,
    run_config,
    the,
    without,
)
from tests.harness.evidence_edits import (
    AT_2,
    LABELS_AND_CONTENT,
    ON_OBSERVATIONS,
    OTHER,
    SOUND,
    TWO,
    Edit,
    judged,
    on_the_second_engine,
    put,
    put_engine,
    put_in_flight,
    put_parameter,
    put_probe,
    red,
    spans,
)


def test_a_sound_run_passes_every_check() -> None:
    checks = judged(SOUND)
    assert list(checks) == list(CHECKS)
    assert {check.status for check in checks.values()} == {"pass"}
    assert all(check.found and check.expected and check.why for check in checks.values())


def test_no_events_at_all_pass_nothing() -> None:
    checks = judged([])
    assert red(checks) == set(CHECKS)
    assert all(check.found.startswith("no evidence: ") for check in checks.values())


@pytest.mark.parametrize("kind", sorted({event["kind"] for event in SOUND}))
def test_an_unreadable_event_speaks_against_the_checks_that_rely_on_it(kind: str) -> None:
    def spoil(run: list[Fields]) -> None:
        for event in run:
            if event["kind"] == kind:
                event["surprise"] = 1

    relied_on = {
        "pins",
        "topology",
        "step",
        "refit",
        "trainer.done",
        "probe",
        "observed",
        "generation",
        "processes",
        "listening",
    }
    relied_on |= {
        "generations.in-flight",
        "trainer.ready",
        "destroyed",
        "weights",
        "perturbation",
        "perturbation.observed",
    }
    checks = judged(edited(SOUND, spoil))
    if kind in relied_on | {"teardown"}:
        assert any(f"({kind}) is unreadable: surprise" in checks[check_id].found for check_id in red(checks))
    elif kind == "service.started":
        assert red(checks) == {"stack.same-processes"}
    else:
        assert not red(checks)


def test_a_missing_observation_is_no_evidence_for_labels_and_content() -> None:
    checks = judged(without(SOUND, "observed", version=3))
    assert red(checks) == ON_OBSERVATIONS | {"training.rollouts-served"}
    assert checks["policy.weights-match"].found == "no evidence: no observation at version 3"


@pytest.mark.parametrize("steps", [1, 8])
def test_any_number_of_steps_is_judged_whole(steps: int) -> None:
    run = passing_run(run_config(steps=steps))
    assert red(judged(run, steps=steps)) == set()
    assert "training.four-steps" in red(judged(run, steps=steps + 1))


def test_every_engine_of_several_has_to_prove_itself() -> None:
    config = {"tensor_parallel": (2, 2)}
    run = passing_run(run_config(**config))
    assert red(judged(run, **config)) == set()
    stale = observed(1, run_config(**config)).engines[1].model_dump(mode="json")
    stale["finished"] = the(run, "observed", version=2)["engines"][1]["finished"]
    late = edited(run, lambda r: the(r, "observed", version=2)["engines"].__setitem__(1, stale))
    assert red(judged(late, **config)) == ON_OBSERVATIONS - {"policy.cache-reset"}
    lost = edited(run, lambda r: the(r, "observed", version=4)["engines"].pop())
    assert {"policy.versions-advance", "engine.not-paused"} <= red(judged(lost, **config))


def ended_after(version: int, **error: Any) -> list[Fields]:
    """A run whose refit after `version` failed; it was torn down properly."""
    cut = SOUND.index(the(SOUND, "observed", version=version)) + 1
    teardown = [event for event in SOUND if event["kind"] == "teardown"]
    return [*SOUND[:cut], failure(**error).fields(), *teardown]


def test_what_a_failed_run_did_not_reach_is_not_judged() -> None:
    checks = judged(ended_after(1))
    assert {check_id: check.status for check_id, check in checks.items()} == {
        "stack.pins-installed": "pass",
        "discovery.topology": "pass",
        "training.four-steps": "skip",
        "training.rewards": "pass",
        "training.rollouts-served": "skip",
        "policy.versions-advance": "skip",
        "policy.weights-covered": "pass",
        "policy.weights-destroyed": "pass",
        "policy.weights-digests": "skip",
        "policy.weights-restored": "skip",
        "policy.weights-match": "skip",
        "policy.weights-changed": "skip",
        "policy.mismatch": "pass",
        "policy.cache-reset": "skip",
        "policy.versions-spans": "skip",
        "policy.generations-in-flight": "skip",
        "generation.after-update": "skip",
        "engine.not-paused": "skip",
        "stack.same-processes": "skip",
        "stack.loopback-only": "skip",
        "teardown.clean": "pass",
    }
    assert checks["policy.weights-match"].why == "the run ended in refit: not reached"


def test_what_a_failed_run_did_record_still_counts() -> None:
    run = edited(ended_after(1), put_engine(1, engine_label="default"))
    assert red(judged(run)) == {"policy.versions-advance"}


def test_a_failed_run_owes_a_clean_teardown() -> None:
    check = judged(without(ended_after(1), "teardown"))["teardown.clean"]
    assert (check.status, check.found) == ("fail", "no evidence: no teardown event")


def test_a_run_that_started_nothing_has_nothing_to_tear_down() -> None:
    check = judged([SOUND[0], failure(kind="install", exit_code=20).fields()])["teardown.clean"]
    assert (check.status, check.why) == ("skip", "the run ended in install: nothing was started")


def test_a_long_list_of_faults_is_counted_after_the_first_few() -> None:
    many = {f"package-{index}": "1" for index in range(10)}
    check = judged(edited(SOUND, put("pins", {}, expected=many, found={})))["stack.pins-installed"]
    assert check.found.count("is not installed") == 3
    assert check.found.endswith("; and 7 more")


def test_a_restoration_that_the_trainer_did_not_tell_of_proves_neither_content_nor_labels() -> None:
    checks = judged(without(SOUND, "perturbation", stage="restored"))
    assert red(checks) == {"policy.weights-restored", "policy.generations-in-flight"}


def test_what_was_in_flight_is_counted_for_each_way_to_pause() -> None:
    check = judged(SOUND)["policy.generations-in-flight"]
    assert check.found == "3 of 3 aborted; 3 of 3 waited for; 3 of 3 kept"
    one = edited(SOUND, put_in_flight("restored", 0, ended_s=0.05, spans=spans(("4-perturbed", 0, 64))))
    assert judged(one)["policy.generations-in-flight"].found.endswith("2 of 3 kept")
    again = edited(SOUND, put("generations.in-flight", {"stage": "repeated"}, holds=3))
    assert judged(again)["policy.generations-in-flight"].found.startswith("3 of 3 aborted (held at attempt 3); ")


def test_one_begun_after_the_refit_is_whole_and_was_not_in_flight() -> None:
    """A request that came after the pause, and was held until the end of the refit."""
    late = edited(
        SOUND,
        put_in_flight("repeated", 0, seen=0, tokens=64, finish_reason="length", spans=spans(("4-repeated", 0, 64))),
    )
    check = judged(late)["policy.generations-in-flight"]
    assert check.status == "pass"
    assert check.found.startswith("2 of 3 aborted; ")


@pytest.mark.parametrize("none", [None, []])
def test_one_aborted_before_its_first_token_has_no_version_to_name(none: list[Any] | None) -> None:
    early = edited(SOUND, put_in_flight("repeated", 0, seen=0, tokens=0, spans=none))
    check = judged(early)["policy.generations-in-flight"]
    assert check.status == "pass"
    assert check.found.startswith("2 of 3 aborted; ")


def test_an_abort_that_ends_nothing_is_named() -> None:
    whole = {"tokens": 64, "finish_reason": "length", "ended_s": 0.9}
    run = edited(SOUND, put_in_flight("repeated", 0, **whole, spans=spans(("4", 0, 64))))
    run = edited(run, put_in_flight("repeated", -1, **whole))
    assert judged(run)["policy.generations-in-flight"].found == (
        "repeated weights, paused by abort: engine output 0 was not aborted: length, 64 of 64 tokens;"
        " repeated weights, paused by abort: frontend output 2 was not aborted: length, 64 of 64 tokens"
    )


def test_what_no_server_answered_has_no_status_of_a_server() -> None:
    run = edited(SOUND, put_in_flight("restored", -1, status=0, tokens=0, error="no end within 30 s"))
    found = judged(run)["policy.generations-in-flight"].found
    assert found == "restored weights, paused by keep: frontend output 2 got no answer: no end within 30 s"


def test_what_was_held_and_went_on_before_the_refit_was_done_is_named() -> None:
    run = edited(SOUND, put_in_flight("restored", 0, ended_s=0.3, spans=spans(("4-perturbed", 0, 64))))
    assert judged(run)["policy.generations-in-flight"].found == (
        "restored weights, paused by keep: engine output 0 went on under 4-perturbed, although it was held"
    )


def test_nothing_in_flight_is_said_of_each_engine_and_the_frontend() -> None:
    none = edited(SOUND, put("generations.in-flight", {"stage": "perturbed"}, generations=[]))
    assert judged(none)["policy.generations-in-flight"].found == (
        "no evidence: perturbed weights, paused by wait: nothing was in flight at 1 of the engines;"
        " perturbed weights, paused by wait: nothing was in flight through the frontend"
    )


def test_an_event_in_anothers_name_is_no_evidence() -> None:
    forged = edited(SOUND, put("observed", {"version": 2}, source="trainer"))
    assert red(judged(forged)) == {
        "training.rollouts-served",
        "policy.versions-advance",
        "policy.versions-spans",
        "policy.cache-reset",
        "policy.weights-match",
        "policy.weights-changed",
        "policy.weights-covered",
        "policy.weights-destroyed",
        "policy.weights-digests",
        "policy.weights-restored",
        "engine.not-paused",
    }


def test_a_version_that_was_observed_twice_is_not_believed() -> None:
    config = run_config()
    place = SOUND.index(the(SOUND, "observed", version=2))
    checks = judged([*SOUND[:place], observed(2, config).fields(), *SOUND[place:]])
    assert red(checks) == LABELS_AND_CONTENT
    assert "version 2 was observed twice" in checks["policy.versions-advance"].found


@pytest.mark.parametrize("kind", ["step", "refit", "probe"])
def test_what_the_trainer_says_after_its_end_is_out_of_order(kind: str) -> None:
    again = next(event for event in reversed(SOUND) if event["kind"] == kind)
    checks = judged([*SOUND, again])
    assert f"{kind} came after the trainer was done" in checks["training.four-steps"].found


def test_the_expectation_comes_from_the_configuration_alone(tmp_path: Path) -> None:
    want = Expectation.of(run_config(tmp_path, tensor_parallel=(2, 2), steps=3))
    assert (want.world_size, list(want.versions), want.starts_untrained) == (4, [0, 1, 2, 3], True)
    assert events.BEFORE_TRANSFER not in want.versions


@pytest.mark.parametrize(
    ("check_id", "edit", "said"),
    [
        ("policy.versions-advance", put_engine(2, engine_label="1"), "engine label '1' at engine-1"),
        ("policy.weights-digests", put_parameter(AT_2, NORM, sha256=OTHER), "engine-1 rank 0: model.norm.weight"),
        ("policy.weights-match", put_probe(3, token_ids=[54, 0]), "version 3 at engine-1 probe 0"),
        ("engine.not-paused", put_engine(4, paused=True), "engine-1 is paused"),
    ],
)
def test_the_engine_that_is_wrong_is_named(check_id: str, edit: Edit, said: str) -> None:
    run = edited(passing_run(run_config(**TWO)), on_the_second_engine(edit))
    found = judged(run, **TWO)[check_id].found
    assert said in found
    assert "engine-0" not in found
