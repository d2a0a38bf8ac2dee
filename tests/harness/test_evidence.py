"""Every check passes on a sound run; what was not recorded, not reached or not believable passes none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
from event_factory import (
    EMBEDDING,
    EMPTY,
    FITTING,
    HEAD,
    NORM,
    PROJECTION,
    Fields,
    edited,
    failure,
    observed,
    passing_run,
    run_config,
    the,
    without,
)

from harness import events
from harness.config import MismatchBudget
from harness.evidence import CHECKS, Expectation
from tests.harness.evidence_edits import (
    AT_2,
    LABELS_AND_CONTENT,
    ON_OBSERVATIONS,
    OTHER,
    SOUND,
    Edit,
    all_zero,
    judged,
    on_the_second_engine,
    put,
    put_engine,
    put_fit,
    put_parameter,
    put_probe,
    put_socket,
    put_tensors,
    red,
    rollouts_of,
    same_start,
    unlisten,
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
    relied_on |= {"trainer.ready", "destroyed", "weights", "perturbation", "perturbation.observed"}
    checks = judged(edited(SOUND, spoil))
    if kind in relied_on | {"teardown"}:
        assert any(f"({kind}) is unreadable: surprise" in checks[check_id].found for check_id in red(checks))
    elif kind == "service.started":
        assert red(checks) == {"stack.same-processes"}
    else:
        assert not red(checks)


def test_without_a_look_before_transfer_0_nothing_can_be_said_of_what_it_did() -> None:
    checks = judged(without(SOUND, "observed", version=-1))
    weights = {"policy.weights-changed", "policy.weights-covered", "policy.weights-destroyed"}
    assert red(checks) == weights | {"policy.cache-reset"}


def test_the_digest_of_nothing_is_counted_and_never_equal() -> None:
    """The CPU backend frees what it repacks. Both sides with that digest are still no evidence."""
    found = judged(SOUND)["policy.weights-digests"].found
    assert found.endswith("6 without evidence"), found
    assert "24 equal" in found

    def freed_everywhere(run: list[Fields]) -> None:
        for event in run:
            for engine in event.get("engines", []) if event["kind"] != "refit" else []:
                for parameter in engine["ranks"][0]:
                    parameter["sha256"] = EMPTY
            for parameter in event.get("parameters", []) if event["kind"] in {"weights", "perturbation"} else []:
                parameter.update(sha256=EMPTY, values_sha256=EMPTY)

    check = judged(edited(SOUND, freed_everywhere))["policy.weights-digests"]
    assert (check.status, check.found) == ("fail", "no evidence: no parameter with evidence")


def test_a_parameter_that_was_zero_all_along_cannot_be_destroyed() -> None:
    checks = judged(edited(SOUND, lambda run: all_zero(run, NORM)))
    assert not red(checks) - {"policy.weights-digests"}
    assert checks["policy.weights-destroyed"].found.endswith("; 3 parameters gone, 2 unseen"), "nor seen to be"


def test_the_parameter_is_named() -> None:
    """F06 and the one flipped bit: who reads the text knows which tensor to look at."""
    for name in (NORM, PROJECTION, HEAD):
        found = judged(edited(SOUND, put_parameter(AT_2, name, sha256=OTHER)))["policy.weights-digests"].found
        assert found == f"version 2: {name} differs from the trainer's"
    found = judged(edited(SOUND, put_tensors(lambda tensors: tensors.pop(0))))["policy.weights-covered"].found
    assert f"2 parameters not sent: {HEAD}; {EMBEDDING}" in found


def test_every_rank_has_to_tell_what_it_holds() -> None:
    config = run_config(tensor_parallel=(1, 1))
    run = passing_run(config)
    assert judged(run, tensor_parallel=(1, 1))["policy.weights-digests"].status == "pass"
    the(run, "observed", version=3)["engines"][1]["ranks"] = []
    check = judged(run, tensor_parallel=(1, 1))["policy.weights-digests"]
    assert check.found == "no evidence: engine-1: 0 ranks told what they hold at version 3, expected 1"


def test_a_label_without_weights_is_a_matter_of_content_only() -> None:
    """F05: the version is set with no weights moved."""

    def label_only(run: list[Fields]) -> None:
        before = the(run, "observed", version=1)["engines"][0]["probes"]
        the(run, "observed", version=2)["engines"][0]["probes"] = before

    assert red(judged(edited(SOUND, label_only))) == {"policy.weights-match", "policy.weights-changed"}


def test_a_budget_that_nobody_asked_for_is_as_wide_as_the_precision_needs_it() -> None:
    """bfloat16 rounds so much that neighbouring versions cannot be told apart: not asked, and not measured."""
    alike = edited(SOUND, put_fit(3, 1, [*FITTING]))
    assert judged(alike)["policy.mismatch"].status == "fail"
    check = judged(alike, platform="cuda")["policy.mismatch"]
    assert (check.status, check.found.rpartition("; ")[2]) == ("pass", "0 of 16 rollouts fit their version only")
    assert "max |diff| <= 0.5 " in check.expected
    given = MismatchBudget.of(1e-2)
    assert Expectation.of(run_config(platform="cuda", mismatch=given)).mismatch == given


def test_a_wrong_version_of_the_rollouts_is_named() -> None:
    found = judged(edited(SOUND, rollouts_of(step=3, version=1)))["policy.mismatch"].found
    assert found == "step 3: 4 rollouts not of version 2: fit version 1"
    found = judged(edited(SOUND, put_fit(3, 2, [0.3] * 4)))["policy.mismatch"].found
    assert found == "step 3: 4 rollouts not of version 2: fit no version near it"


def test_the_mismatch_budget_is_the_configurations_and_stands_beside_the_result() -> None:
    check = judged(SOUND)["policy.mismatch"]
    assert check.expected.startswith("k3 <= 1e-08, mean |diff| <= 0.0001, max |diff| <= 0.001 ")
    numbers = "k3 <= 2.0e-12, mean <= 1.0e-06, max 4.0e-06 at step 1"
    assert check.found == f"{numbers}; 16 of 16 rollouts fit their version only"
    strict = judged(SOUND, mismatch=MismatchBudget.of(1e-6))["policy.mismatch"]
    assert strict.status == "fail"
    found = strict.found.split("; ")
    assert found[0] == "step 1: 4 rollouts not of version 0: fit no version near it"
    assert found[1] == "step 1: k3 2e-12 over 1e-14, mean |diff| 1e-06 over 1e-07, max |diff| 4e-06 over 1e-06"
    assert MismatchBudget.of(1e-2) == MismatchBudget(max_abs=1e-2, mean_abs=1e-3, k3=1e-6)


def test_weights_without_a_label_are_a_matter_of_labels_only() -> None:
    """F05: weights move with no version."""
    edit = put_engine(2, engine_label="1", sidecar_label="1")
    assert red(judged(edited(SOUND, edit))) == {"policy.versions-advance"}


def test_a_missing_observation_is_no_evidence_for_labels_and_content() -> None:
    checks = judged(without(SOUND, "observed", version=3))
    assert red(checks) == ON_OBSERVATIONS | {"training.rollouts-served"}
    assert checks["policy.weights-match"].found == "no evidence: no observation at version 3"


def test_an_engine_that_was_not_probed_is_no_evidence() -> None:
    checks = judged(edited(SOUND, put_engine(3, probes=[])))
    assert red(checks) == {"policy.weights-match", "policy.weights-changed"}


def test_prompts_that_differ_are_not_compared() -> None:
    checks = judged(edited(SOUND, put_probe(3, prompt_ids=[1, 2, 3, 4])))
    assert "did not probe the same prompts" in checks["policy.weights-match"].found
    assert "not the same" in checks["policy.weights-changed"].found


def test_a_difference_of_rounding_is_a_match_and_the_tolerance_is_stated() -> None:
    check = judged(SOUND)["policy.weights-match"]
    assert "within 0.001" in check.expected
    assert check.found.startswith("|diff| <= 1.0e-06, version ")


def test_a_divergence_says_where_and_how_close_the_two_choices_were() -> None:
    found = judged(edited(SOUND, put_probe(3, token_ids=[54, 0])))["policy.weights-match"].found
    assert found == "version 3 probe 0: greedy token 0 is 54, trainer 55 (log-probabilities 1e-07 apart)"


@pytest.mark.parametrize(
    ("margin", "engine_logprob", "status"),
    [
        (5e-4, -0.3851, "pass"),
        (5e-4, -0.39, "fail"),
        (2e-3, -0.3851, "fail"),
        (math.nan, -0.3851, "fail"),
        (None, -0.3851, "fail"),
    ],
    ids=["tie", "not as probable", "clear choice", "margin is no number", "margin not told"],
)
def test_only_a_tie_that_the_trainer_saw_too_excuses_another_greedy_token(
    margin: float | None, engine_logprob: float, status: str
) -> None:
    def choose_the_other(run: list[Fields]) -> None:
        ours = the(run, "probe", version=3)["probes"][0]
        ours["margins"] = [] if margin is None else [margin, 4.0]
        theirs = the(run, "observed", version=3)["engines"][0]["probes"][0]
        theirs.update(token_ids=[54, 17], logprobs=[engine_logprob, -2.0])

    assert judged(edited(SOUND, choose_the_other))["policy.weights-match"].status == status


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_has_more_than_one_address(address: str) -> None:
    assert not red(judged(edited(SOUND, put_socket("end", address=address))))


def test_the_address_where_a_run_was_told_to_listen_is_allowed() -> None:
    run = edited(SOUND, put_socket("end", address="192.168.3.7"))
    assert judged(run, host="192.168.3.7")["stack.loopback-only"].status == "pass"
    check = judged(run)["stack.loopback-only"]
    assert check.found == "engine-0 (pid 102) listens on 192.168.3.7:20102, tcp"


def test_a_model_that_is_served_as_it_is_need_not_change_with_transfer_0() -> None:
    run = edited(SOUND, same_start)
    assert red(judged(run, starts_untrained=False)) == set()
    assert red(judged(run)) == {"policy.weights-changed"}


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


def test_gaps_in_the_rank_order_are_found() -> None:
    config = {"tensor_parallel": (2, 2)}
    run = passing_run(run_config(**config))
    gap = edited(run, lambda r: the(r, "topology")["workers"][1].update(rank_offset=3))
    assert red(judged(gap, **config)) == {"discovery.topology"}


def test_a_stack_that_is_kept_up_is_not_asked_to_be_gone() -> None:
    check = judged(without(SOUND, "teardown"), keep_up=True)["teardown.clean"]
    assert (check.status, check.why) == ("skip", "--keep-up leaves the stack running")


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


@pytest.mark.parametrize("kept", [SOUND, without(SOUND, "topology")], ids=["topology pinned", "none pinned"])
def test_a_run_that_discovery_ended_has_no_sound_topology(kept: list[Fields]) -> None:
    """A topology that never came, or changed, is not a check that was merely not reached."""
    ended = failure(kind="discovery", what="the topology changed under the run", found="gone: backend/1", exit_code=31)
    check = judged([*kept, ended.fields()])["discovery.topology"]
    assert check.status == "fail"
    assert "gone: backend/1" in check.found


def test_another_failure_says_nothing_about_the_topology() -> None:
    assert judged([*without(SOUND, "topology"), failure().fields()])["discovery.topology"].status == "skip"


TWO = {"tensor_parallel": (1, 1)}


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


def test_an_engine_that_was_asked_for_no_rollout_is_named() -> None:
    run = passing_run(run_config(**TWO))
    first, second = the(run, "observed", version=2)["engines"]
    second["finished"]["before"] = the(run, "observed", version=1)["engines"][1]["finished"]["after"]
    first["finished"]["before"] += 2
    check = judged(run, **TWO)["training.rollouts-served"]
    assert (check.status, check.found) == ("fail", "step 2: engine-1 finished no request")


def test_each_engines_share_of_the_rollouts_is_told() -> None:
    found = judged(passing_run(run_config(**TWO)), **TWO)["training.rollouts-served"].found
    assert found == "engine-0 finished 2 a step, engine-1 finished 2 a step"


@pytest.mark.parametrize("index", [0, 1])
def test_an_engine_of_another_size_than_configured_is_named_although_the_sum_is_right(index: int) -> None:
    sizes = {"tensor_parallel": (2, 1)}
    run = passing_run(run_config(tensor_parallel=(1, 2)))
    check = judged(run, **sizes)["discovery.topology"]
    assert check.status == "fail"
    assert f"engine-{index} has" in check.found


class TestSlices:
    """An engine of two ranks beside one of a single rank."""

    SIZES: ClassVar = {"tensor_parallel": (2, 1)}

    def run(self) -> list[Fields]:
        return passing_run(run_config(**self.SIZES))

    def parameter(self, run: list[Fields], version: int, rank: int, name: str) -> dict[str, Any]:
        ranks = the(run, "observed", version=version)["engines"][0]["ranks"]
        return next(one for one in ranks[rank] if one["name"] == name)

    def test_they_are_compared_with_the_trainers_slices_and_counted(self) -> None:
        checks = judged(self.run(), **self.SIZES)
        assert red(checks) == set()
        assert "; 4 in slices, whole together" in checks["policy.weights-covered"].found
        found = checks["policy.weights-digests"].found
        assert found.startswith("72 equal (18 by the engine's own, 18 by rows, 36 read back), 36 of them slices, 18 w")

    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_wrong_slice_is_named_with_its_rank(self, rank: int) -> None:
        run = self.run()
        self.parameter(run, 2, rank, PROJECTION)["sha256"] = OTHER
        checks = judged(run, **self.SIZES)
        assert red(checks) == {"policy.weights-digests"}
        assert f"engine-0 rank {rank}: {PROJECTION} differs" in checks["policy.weights-digests"].found

    def test_the_other_ranks_slice_is_not_this_ones(self) -> None:
        run = self.run()
        one, two = (self.parameter(run, 2, rank, PROJECTION) for rank in (0, 1))
        one["sha256"], two["sha256"] = two["sha256"], one["sha256"]
        assert red(judged(run, **self.SIZES)) == {"policy.weights-digests"}

    def test_a_slice_that_the_trainer_has_no_digest_of_is_no_evidence(self) -> None:
        run = self.run()
        the(run, "weights", version=2)["parameters"] = [
            one for one in the(run, "weights", version=2)["parameters"] if one.get("cut") is None
        ]
        check = judged(run, **self.SIZES)["policy.weights-digests"]
        assert (
            check.status,
            check.found.startswith("no evidence: version 2: engine-0 rank 0: the trainer has no"),
        ) == (
            "fail",
            True,
        )

    def test_slices_that_leave_something_out_are_not_the_whole(self) -> None:
        run = self.run()
        cut = self.parameter(run, -1, 0, PROJECTION)["cut"]
        self.parameter(run, -1, 1, PROJECTION)["cut"] = cut
        checks = judged(run, **self.SIZES)
        assert red(checks) == {"policy.weights-covered"}
        found = checks["policy.weights-covered"].found
        assert found == f"engine-0: its ranks' slices of {PROJECTION} are not the whole"

    @pytest.mark.parametrize(
        "changes",
        [
            {"shape": [128, 128]},
            {"cut": {"dim": 1, "start": 0, "stop": 64}},
            {"cut": {"dim": 2, "start": 0, "stop": 64}},
            {"cut": {"dim": 0, "start": 0, "stop": 300}},
            {"cut": None},
        ],
    )
    def test_a_slice_that_the_parameter_cannot_have_is_refused(self, changes: dict[str, Any]) -> None:
        run = self.run()
        self.parameter(run, -1, 0, PROJECTION).update(changes)
        assert red(judged(run, **self.SIZES)) == {"policy.weights-covered"}

    def test_what_cannot_be_told_of_a_slice_counts_as_no_evidence_and_never_as_equal(self) -> None:
        run = self.run()
        for event in run:
            for engine in event.get("engines", []):
                if isinstance(engine, dict) and len(engine["ranks"]) > 1:
                    for rank in engine["ranks"]:
                        for one in rank:
                            if one["name"] == PROJECTION:
                                one.update(how="sharded", shape=None, cut=None, sha256=None)
        checks = judged(run, **self.SIZES)
        assert red(checks) == set()
        assert checks["policy.weights-digests"].found.startswith("60 equal")
        assert checks["policy.weights-digests"].found.endswith("30 without evidence")


def test_a_cache_that_was_never_looked_at_on_one_engine_is_missed() -> None:
    run = passing_run(run_config(**TWO))
    for event in run:
        if event["kind"] == "observed":
            event["engines"][1]["cache"] = None
    check = judged(run, **TWO)["policy.cache-reset"]
    assert check.status == "fail"
    assert "the cache was not looked at on both sides of refit 0 at engine-1" in check.found


def of_service(kind: str, when: str, service: str, **values: Any) -> Edit:
    """An edit of one service's record in a list of processes or of sockets."""
    field = {"processes": "processes", "listening": "sockets"}[kind]
    return lambda run: next(one for one in the(run, kind, when=when)[field] if one["service"] == service).update(values)


@pytest.mark.parametrize(
    ("check_id", "edit", "said"),
    [
        ("stack.same-processes", of_service("processes", "end", "engine-1", pid=9), "engine-1 pid 201 is gone"),
        ("stack.same-processes", of_service("processes", "end", "sidecar-1", start_time=1.0), "sidecar-1 pid 301"),
        ("stack.same-processes", put("service.exited", {"service": "engine-1"}, expected=False), "engine-1 exited"),
        ("stack.loopback-only", lambda run: unlisten(run, "engine-1"), "engine-1 (pid 201) has no socket"),
        ("stack.loopback-only", of_service("listening", "end", "sidecar-1", address="0.0.0.0"), "sidecar-1 (pid 301)"),
        ("discovery.topology", lambda run: the(run, "topology")["workers"].pop(), "engine-1 is not listed"),
        ("discovery.topology", lambda run: the(run, "topology")["workers"][1].update(model="x"), "engine-1 serves x"),
        ("discovery.topology", lambda run: the(run, "topology")["workers"][0].update(rank_offset=1), "offset is 1"),
    ],
)
def test_what_is_wrong_with_the_second_engines_processes_is_named(check_id: str, edit: Edit, said: str) -> None:
    checks = judged(edited(passing_run(run_config(**TWO)), edit), **TWO)
    assert red(checks) == {check_id}
    assert said in checks[check_id].found
