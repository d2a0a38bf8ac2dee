"""The checks of what was trained on: the rollouts' versions, and who served them."""

from __future__ import annotations

from harness.config import MismatchBudget
from harness.evidence import Expectation
from tests.harness.event_factory import (
    FITTING,
    edited,
    passing_run,
    run_config,
    the,
)
from tests.harness.evidence_edits import (
    SOUND,
    TWO,
    judged,
    put_fit,
    rollouts_of,
)


def test_a_budget_that_nobody_asked_for_is_as_wide_as_the_precision_needs_it() -> None:
    """bfloat16 rounds so much that neighbouring versions cannot be told apart: not asked, and not measured."""
    alike = edited(SOUND, put_fit(3, 1, [*FITTING]))
    assert judged(alike)["policy.mismatch"].status == "fail"
    check = judged(alike, platform="cuda")["policy.mismatch"]
    assert (check.status, check.found.rpartition("; ")[2]) == ("pass", "0 of 16 rollouts fit their version only")
    assert "max |diff| <= 0.5 " in check.expected
    for given in (MismatchBudget.of(1e-2), MismatchBudget()):
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
