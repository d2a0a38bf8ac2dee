"""The checks of what the engines hold and answer: digests, slices, probes, labels and cache."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from tests.harness.event_factory import (
    EMBEDDING,
    EMPTY,
    HEAD,
    NORM,
    PROJECTION,
    Fields,
    edited,
    passing_run,
    run_config,
    the,
    without,
)
from tests.harness.evidence_edits import (
    AT_2,
    OTHER,
    SOUND,
    TWO,
    all_zero,
    judged,
    put_engine,
    put_parameter,
    put_probe,
    put_tensors,
    red,
    same_start,
)


def test_without_a_look_before_transfer_0_nothing_can_be_said_of_what_it_did() -> None:
    checks = judged(without(SOUND, "observed", version=-1))
    weights = {"policy.weights-changed", "policy.weights-covered", "policy.weights-destroyed"}
    assert red(checks) == weights | {"policy.cache-reset"}


def test_the_digest_of_nothing_is_counted_and_never_equal() -> None:
    """The CPU backend frees what it repacks. Both sides with that digest are still no evidence."""
    found = judged(SOUND)["policy.weights-digests"].found
    assert found.endswith("7 without evidence"), found
    assert "28 equal" in found

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
    run = passing_run(run_config(**TWO))
    assert judged(run, **TWO)["policy.weights-digests"].status == "pass"
    the(run, "observed", version=3)["engines"][1]["ranks"] = []
    check = judged(run, **TWO)["policy.weights-digests"]
    assert check.found == "no evidence: engine-1: 0 ranks told what they hold at version 3, expected 1"


def test_a_label_without_weights_is_a_matter_of_content_only() -> None:
    """F05: the version is set with no weights moved."""

    def label_only(run: list[Fields]) -> None:
        before = the(run, "observed", version=1)["engines"][0]["probes"]
        the(run, "observed", version=2)["engines"][0]["probes"] = before

    assert red(judged(edited(SOUND, label_only))) == {"policy.weights-match", "policy.weights-changed"}


def test_weights_without_a_label_are_a_matter_of_labels_only() -> None:
    """F05: weights move with no version."""
    edit = put_engine(2, engine_label="1", sidecar_label="1")
    assert red(judged(edited(SOUND, edit))) == {"policy.versions-advance"}


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


def test_a_model_that_is_served_as_it_is_need_not_change_with_transfer_0() -> None:
    run = edited(SOUND, same_start)
    assert red(judged(run, starts_untrained=False)) == set()
    assert red(judged(run)) == {"policy.weights-changed"}


def test_a_cache_that_was_never_looked_at_on_one_engine_is_missed() -> None:
    run = passing_run(run_config(**TWO))
    for event in run:
        if event["kind"] == "observed":
            event["engines"][1]["cache"] = None
    check = judged(run, **TWO)["policy.cache-reset"]
    assert check.status == "fail"
    assert "the cache was not looked at on both sides of refit 0 at engine-1" in check.found


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
        assert found.startswith("84 equal (21 by the engine's own, 21 by rows, 42 read back), 42 of them slices, 21 w")

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
        assert check.status == "fail"
        assert check.found.startswith("no evidence: version 2: engine-0 rank 0: the trainer has no")

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
        assert checks["policy.weights-digests"].found.startswith("70 equal")
        assert checks["policy.weights-digests"].found.endswith("35 without evidence")
