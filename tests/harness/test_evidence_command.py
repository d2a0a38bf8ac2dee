"""A run of the caller's own trainer is judged by observation alone: each way to fail turns its own check red."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.credentials import NO_CREDENTIALS
from harness.evidence import CHECKS, Check, Expectation, checks_of, evaluate, unjudged_checks
from harness.evidence.command import versions_seen
from harness.evidence.scope import UNTOLD
from harness.evidence.timeline import Timeline
from harness.report.junit import render
from harness.report.verdict import judge_run
from tests.harness.command_run import command_config, passing_command
from tests.harness.event_factory import Fields, edited, failure, passing_run, run_config, the
from tests.harness.evidence_edits import (
    OTHER,
    Edit,
    add_socket,
    drop,
    move_to_start,
    put,
    put_socket,
    red,
    restart,
)

SOUND = passing_command()
WANT = Expectation.of(command_config())
AFTER = {"when": "after"}
JUDGED = {
    "stack.pins-installed",
    "discovery.topology",
    "training.command",
    "policy.versions-advance",
    "policy.weights-changed",
    "generation.after-update",
    "engine.not-paused",
    "stack.same-processes",
    "stack.loopback-only",
    "teardown.clean",
}


def judged(run: list[Fields], want: Expectation = WANT) -> dict[str, Check]:
    return {check.id: check for check in evaluate(run, want)}


def test_a_command_that_did_its_work_passes_what_can_be_observed() -> None:
    checks = judged(SOUND)
    assert {check.id for check in checks.values() if check.status == "pass"} == JUDGED
    assert checks["training.command"].found == "exit status 0 after 20.0 s"
    assert checks["policy.versions-advance"].found == "labels default 0 1 2 3"
    assert checks["policy.weights-changed"].found == "|diff| >= 1.5e-01; 4 of 4 parameters changed"


def test_every_other_check_is_there_and_says_why_it_was_not_judged() -> None:
    checks = judged(SOUND)
    others = {check.id: check for check in checks.values() if check.id not in JUDGED}
    assert others.keys() == CHECKS.keys() - JUDGED == set(unjudged_checks(WANT))
    for check in others.values():
        assert (check.status, check.found) == ("skip", "not judged")
        assert check.why.startswith("not judged: ")
        assert (
            check.expected
            == next(c for c in evaluate([], Expectation.of(command_config())) if c.id == check.id).expected
        )


def test_every_check_of_ours_is_either_observed_or_has_a_reason_of_its_own() -> None:
    assert CHECKS.keys() - JUDGED <= UNTOLD.keys()


def test_nothing_that_a_command_could_write_passes_for_a_trainers_evidence() -> None:
    """Even events of our own trainer in the timeline change nothing."""
    mixed = [
        *SOUND[:-6],
        *(event for event in passing_run() if event["kind"] in {"step", "refit", "probe"}),
        *SOUND[-6:],
    ]
    assert {check.id for check in judged(mixed).values() if check.status == "pass"} == JUDGED


def test_the_verdict_says_that_it_is_one_by_observation_and_what_it_does_not_cover() -> None:
    document = judge_run(SOUND, command_config()).verdict.document()
    assert document["verdict"] == "pass"
    assert document["trainer"] == "python train.py --fast"
    assert document["not_judged"] == [check_id for check_id in checks_of(WANT) if check_id not in JUDGED]
    assert document["policy_versions"] == [0, 1, 2, 3]
    junit = render(judge_run(SOUND, command_config()), NO_CREDENTIALS.conceal).decode()
    assert 'name="trainer" value="python train.py --fast"' in junit
    assert f'name="not_judged" value="{" ".join(document["not_judged"])}"' in junit


def test_a_run_of_our_own_trainer_says_nothing_of_the_kind() -> None:
    document = judge_run(passing_run(), run_config()).verdict.document()
    assert not {"trainer", "not_judged"} & document.keys()


def engine_after(**values: Any) -> Edit:
    return lambda run: the(run, "surveyed", when="after")["engines"][0].update(values)


def unchanged(*, digests: bool, probes: bool) -> Edit:
    def change(run: list[Fields]) -> None:
        (before,), (after,) = (the(run, "surveyed", when=when)["engines"] for when in ("before", "after"))
        after.update(
            {name: copy.deepcopy(before[name]) for name, same in (("ranks", digests), ("probes", probes)) if same}
        )

    return change


def untold_and_unchanged(run: list[Fields]) -> None:
    unchanged(digests=True, probes=True)(run)
    for when in ("before", "after"):
        the(run, "surveyed", when=when)["engines"][0]["ranks"] = []


def never_updated_label(run: list[Fields]) -> None:
    run[:] = [event for event in run if event["kind"] != "labels"]
    engine_after(engine_label="default", sidecar_label="default")(run)


def went_back(run: list[Fields]) -> None:
    seen = [event for event in run if event["kind"] == "labels"]
    for label, event in zip(("0", "2", "1", "2"), seen[1:], strict=False):
        event["engines"][0].update(engine_label=label, sidecar_label=label)


BROKEN: list[tuple[str, str, Edit]] = [
    ("stack.pins-installed", "no evidence", drop("pins")),
    ("discovery.topology", "another world size", put("topology", {}, world_size=2)),
    ("training.command", "it failed", put("command.ended", {}, returncode=3)),
    ("training.command", "a signal", put("command.ended", {}, returncode=-9)),
    ("training.command", "it did not end", put("command.ended", {}, returncode=None)),
    ("training.command", "no evidence", drop("command.ended")),
    ("policy.versions-advance", "the label never moved", never_updated_label),
    ("policy.versions-advance", "the sidecar says another", engine_after(sidecar_label="2")),
    ("policy.versions-advance", "the sidecar says nothing", engine_after(sidecar_label=None)),
    ("policy.versions-advance", "the engine says nothing", engine_after(engine_label=None)),
    ("policy.versions-advance", "an older version came back", went_back),
    ("policy.versions-advance", "the last is an older one", engine_after(engine_label="1", sidecar_label="1")),
    ("policy.weights-changed", "nothing moved", unchanged(digests=True, probes=True)),
    ("policy.weights-changed", "nothing moved, and no digests", untold_and_unchanged),
    ("policy.weights-changed", "not probed", engine_after(probes=[])),
    ("engine.not-paused", "left paused", engine_after(paused=True)),
    ("engine.not-paused", "the sidecar says paused", engine_after(sidecar_paused=True)),
    ("engine.not-paused", "no answer", engine_after(paused=None)),
    ("generation.after-update", "server error", put("generation", AFTER, status=500)),
    ("generation.after-update", "no answer", put("generation", AFTER, status=0, completion_tokens=0)),
    ("generation.after-update", "sent before the command ended", move_to_start("generation", **AFTER)),
    ("stack.same-processes", "a pid used again", lambda run: restart(run, start_time=2000.0)),
    ("stack.loopback-only", "every address of the machine", put_socket("start", address="0.0.0.0")),
    ("stack.loopback-only", "the command's own", lambda run: add_socket(run, "end", service="trainer", address="::")),
    ("teardown.clean", "a process", put("teardown", {}, survivors=[{"pid": 7, "service": "trainer", "cmd": "x"}])),
]


@pytest.mark.parametrize(("check_id", "edit"), [(c, e) for c, _, e in BROKEN], ids=[f"{c}: {n}" for c, n, _ in BROKEN])
def test_one_wrong_thing_turns_exactly_one_check_red(check_id: str, edit: Edit) -> None:
    assert red(judged(edited(SOUND, edit))) == {check_id}


def test_everything_that_is_judged_can_turn_red() -> None:
    assert {check_id for check_id, _, _ in BROKEN} == JUDGED


@pytest.mark.parametrize("edit", [drop("surveyed"), drop("surveyed", when="before"), drop("surveyed", when="after")])
def test_a_stack_that_nobody_looked_at_shows_nothing(edit: Edit) -> None:
    reds = {"policy.versions-advance", "policy.weights-changed", "engine.not-paused"}
    assert red(judged(edited(SOUND, edit))) == reds


def test_a_look_before_the_end_of_the_command_is_none() -> None:
    reds = {"policy.versions-advance", "policy.weights-changed", "engine.not-paused"}
    assert red(judged(edited(SOUND, move_to_start("surveyed", when="after")))) >= reds


def test_bits_are_evidence_where_the_probes_do_not_tell_and_the_other_way_round() -> None:
    for edit in (unchanged(digests=True, probes=False), unchanged(digests=False, probes=True)):
        assert red(judged(edited(SOUND, edit))) == set()


def test_engines_that_end_with_different_weights_or_versions_are_named() -> None:
    config = command_config(tensor_parallel=(1, 1))
    want = Expectation.of(config)
    sound = passing_command(config)
    assert red(judged(sound, want)) == set()

    def other_version(run: list[Fields]) -> None:
        the(run, "surveyed", when="after")["engines"][1].update(engine_label="2", sidecar_label="2")

    def other_weights(run: list[Fields]) -> None:
        engine = the(run, "surveyed", when="after")["engines"][1]
        engine["probes"][0]["prompt_logprobs"] = [-9.0, -9.0, -9.0]

    assert red(judged(edited(sound, other_version), want)) == {"policy.versions-advance"}
    assert red(judged(edited(sound, other_weights), want)) == {"policy.weights-changed"}


def test_a_parameter_without_evidence_is_no_change() -> None:
    def freed(run: list[Fields]) -> None:
        unchanged(digests=True, probes=True)(run)
        for parameter in the(run, "surveyed", when="after")["engines"][0]["ranks"][0]:
            if parameter["name"] == "model.norm.weight":
                parameter["sha256"] = None

    assert red(judged(edited(SOUND, freed))) == {"policy.weights-changed"}

    def one_bit(run: list[Fields]) -> None:
        unchanged(digests=True, probes=True)(run)
        the(run, "surveyed", when="after")["engines"][0]["ranks"][0][2]["sha256"] = OTHER

    assert red(judged(edited(SOUND, one_bit))) == set()


def test_a_command_that_failed_is_the_runs_failure_and_what_it_left_is_judged_all_the_same() -> None:
    def fails(run: list[Fields]) -> None:
        ended = the(run, "command.ended")
        place = run.index(ended)
        run[place:] = [{**ended, "returncode": 3}, failure(kind="training").fields(), *run[-2:]]

    outcome = judge_run(edited(SOUND, fails), command_config())
    assert (outcome.exit_code, outcome.verdict.verdict) == (40, "error")
    statuses = {check.id: check.status for check in outcome.verdict.checks}
    assert statuses["training.command"] == "fail"
    assert statuses["generation.after-update"] == "skip"
    assert statuses["teardown.clean"] == "pass"


def test_versions_are_those_that_engine_and_sidecar_were_seen_to_share() -> None:
    def disagree(run: list[Fields]) -> None:
        for event in run:
            if event["kind"] == "labels" and event["engines"][0]["engine_label"] == "1":
                event["engines"][0]["sidecar_label"] = "0"

    assert versions_seen(Timeline.read(edited(SOUND, disagree)), WANT) == [0, 2, 3]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_engine_that_is_none_of_the_runs_is_no_evidence(when: str) -> None:
    def stranger(run: list[Fields]) -> None:
        the(run, "surveyed", when=when)["engines"][0]["admin_url"] = "http://127.0.0.1:9"

    checks = judged(edited(SOUND, stranger))
    assert red(checks) == {"policy.versions-advance", "policy.weights-changed", "engine.not-paused"}
    assert f"engine-0 not observed {when} the command" in checks["engine.not-paused"].found
