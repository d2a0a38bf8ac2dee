"""The default run on this machine: it passes, and what it leaves says how."""

from __future__ import annotations

import hashlib
import json
import math
from xml.etree import ElementTree

from smoke.runner import Outcome, assert_nothing_left

CHECKS = [
    "stack.pins-installed",
    "discovery.topology",
    "training.four-steps",
    "training.rewards",
    "training.rollouts-served",
    "policy.versions-advance",
    "policy.weights-covered",
    "policy.weights-destroyed",
    "policy.weights-digests",
    "policy.weights-match",
    "policy.weights-changed",
    "policy.weights-restored",
    "policy.mismatch",
    "policy.cache-reset",
    "policy.versions-spans",
    "policy.generations-in-flight",
    "generation.after-update",
    "engine.not-paused",
    "stack.same-processes",
    "stack.loopback-only",
    "teardown.clean",
]


def test_it_passes_with_four_steps_and_five_versions(default_run: Outcome) -> None:
    assert default_run.returncode == 0, default_run.explain()
    verdict = default_run.verdict
    assert verdict["verdict"] == "pass"
    assert verdict["policy_versions"] == [0, 1, 2, 3, 4]
    assert verdict["failure"] is None
    assert_nothing_left(default_run)


def test_stdout_is_the_verdict_and_nothing_else(default_run: Outcome) -> None:
    assert json.loads(default_run.stdout) == default_run.verdict


def test_every_check_ran_and_says_what_it_saw(default_run: Outcome) -> None:
    checks = {check["id"]: check for check in default_run.verdict["checks"]}
    assert list(checks) == CHECKS
    for check in checks.values():
        assert check["status"] == "pass", check
        assert check["expected"] and check["found"], check


def test_junit_says_the_same(default_run: Outcome) -> None:
    cases = ElementTree.parse(default_run.run_dir / "junit.xml").getroot().iter("testcase")
    outcomes = {case.get("name"): len(case) == 0 or case.find("failure") is None for case in cases}
    assert outcomes == dict.fromkeys(CHECKS, True)


def test_the_harness_observed_each_version_itself(default_run: Outcome) -> None:
    observed = [event for event in default_run.events if event["kind"] == "observed"]
    assert [event["version"] for event in observed] == [-1, 0, 1, 2, 3, 4]
    assert {event["source"] for event in observed} == {"observer"}
    assert [engine["engine_label"] for event in observed[1:] for engine in event["engines"]] == list("01234")


def test_every_parameter_of_the_engine_gives_evidence_and_has_the_trainers_digest(default_run: Outcome) -> None:
    """What the harness made of it is `policy.weights-digests`; here the two lists are put side by side once more."""
    ready = default_run.only("trainer.ready")
    for version in range(5):
        ours = {item["name"]: item for item in default_run.only("weights", version=version)["parameters"]}
        [engine] = default_run.only("observed", version=version)["engines"]
        [rank] = engine["ranks"]
        assert len(rank) == len(ours) + len(ready["tied"]) == 25
        for held in rank:
            reference = ours[ready["tied"].get(held["name"], held["name"])]
            field = "values_sha256" if held["how"] == "multiplied" else "sha256"
            assert held["sha256"] == reference[field], (version, held)
    assert {held["name"]: held["how"] for held in rank}["lm_head.weight"] == "multiplied"


def test_no_digest_is_that_of_nothing_and_the_engines_own_would_have_been(default_run: Outcome) -> None:
    """The CPU backend has freed all linear weights: they are read back, or there would be no evidence of them."""
    [engine] = default_run.only("observed", version=4)["engines"]
    kinds = [held["how"] for held in engine["ranks"][0]]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"held": 9, "part": 1, "multiplied": 15}
    assert hashlib.sha256(b"").hexdigest() not in {held["sha256"] for held in engine["ranks"][0]}


def test_the_engine_was_destroyed_before_the_first_transfer(default_run: Outcome) -> None:
    kinds = [event["kind"] for event in default_run.events]
    assert kinds.index("observed") < kinds.index("destroyed") < kinds.index("transfer.initialised")
    [engine] = default_run.only("destroyed")["engines"]
    logprobs = {round(value, 4) for probe in engine["probes"] for value in probe["prompt_logprobs"]}
    assert logprobs == {round(-math.log(261), 4)}, "all weights are zero, so all tokens are equally likely"


def test_a_perturbation_shows_and_the_restoration_is_exact(default_run: Outcome) -> None:
    [final] = default_run.only("observed", version=4)["engines"]
    [perturbed] = default_run.only("perturbation.observed", stage="perturbed")["engines"]
    [restored] = default_run.only("perturbation.observed", stage="restored")["engines"]
    assert (perturbed["engine_label"], restored["engine_label"]) == ("4-perturbed", "4")
    assert restored["probes"] == final["probes"]
    assert restored["ranks"] == final["ranks"]
    assert perturbed["probes"] != final["probes"]
    pairs = zip(perturbed["ranks"][0], final["ranks"][0], strict=True)
    assert not [one["name"] for one, two in pairs if one["sha256"] == two["sha256"]]


def test_rewards_are_mixed_so_that_grpo_has_something_to_learn_from(default_run: Outcome) -> None:
    steps = [event for event in default_run.events if event["kind"] == "step"]
    groups = [group["rewards"] for step in steps for group in step["rewards"]["groups"]]
    assert any(len(set(rewards)) > 1 for rewards in groups)
    assert all(math.isfinite(step["loss"]) for step in steps)
    assert sum(step["errored"] for step in steps) == 0


def test_rollouts_are_the_trainers_policy(default_run: Outcome) -> None:
    """Log-probabilities that the engine sampled with against the trainer's, on the rollouts' own tokens."""
    budget = json.loads((default_run.run_dir / "config.json").read_text())["mismatch"]
    for step in (event for event in default_run.events if event["kind"] == "step"):
        assert all(step["mismatch"][name] <= limit for name, limit in budget.items()), step
        own = step["version_sampled"]
        assert [fit["version"] for fit in step["fits"]] == list(range(max(own - 1, 0), own + 2)), step
        for fit in step["fits"]:
            fitting = [gap <= budget["max_abs"] for gap in fit["max_abs"]]
            assert len(fitting) == 16, step
            assert all(fitting) if fit["version"] == own else sum(fitting) < 8, step


def test_no_refit_left_anything_in_the_prefix_cache(default_run: Outcome) -> None:
    for event in (event for event in default_run.events if event["kind"] == "observed"):
        for engine in event["engines"]:
            assert engine["cache"]["first"]["cached_tokens"] == 0, event["version"]
            assert engine["cache"]["again"]["cached_tokens"] >= 256, event["version"]


def test_generations_were_in_flight_in_each_way_to_pause(default_run: Outcome) -> None:
    """What an engine had not begun when it was paused is of the next version, and whole."""
    before = {"repeated": "4", "perturbed": "4-repeated", "restored": "4-perturbed"}
    after = {"repeated": "4-repeated", "perturbed": "4-perturbed", "restored": "4"}
    for stage, pause in (("repeated", "abort"), ("perturbed", "wait"), ("restored", "keep")):
        told = default_run.only("generations.in-flight", stage=stage)
        engine = [one for one in told["generations"] if one["via"] == "engine"]
        assert (told["pause"], len(engine), len(told["generations"])) == (pause, 4, 6)
        begun = [one for one in engine if one["spans"] and one["spans"][0]["version"] == before[stage]]
        versions = {tuple(part["version"] for part in one["spans"]) for one in begun}
        assert begun, told
        assert versions == {(before[stage], after[stage]) if pause == "keep" else (before[stage],)}, told
        for one in begun:
            assert one["finish_reason"] == ("abort" if pause == "abort" else "length"), one
            assert (one["tokens"] == one["asked"]) == (pause != "abort"), one


def test_the_evidence_is_complete(default_run: Outcome) -> None:
    names = {path.name for path in default_run.run_dir.iterdir()}
    assert {"verdict.json", "config.json", "events.jsonl", "junit.xml", "environment.json", "logs"} <= names
    logs = {path.stem: path.stat().st_size for path in (default_run.run_dir / "logs").glob("*.log")}
    assert {"etcd", "engine-0", "frontend", "sidecar-0", "trainer"} <= logs.keys()
    assert all(logs[name] for name in ("etcd", "engine-0", "frontend", "sidecar-0")), logs


def test_warm_total_stays_near_the_engines_own_start(default_run: Outcome) -> None:
    """The aim is 1.5 times; the bound leaves room for a noisy machine."""
    ready = next(
        e["seconds"] for e in default_run.events if e["kind"] == "service.ready" and e["service"] == "engine-0"
    )
    phases = default_run.verdict["phases"]
    assert phases["total"] - phases["install"] < 2.5 * ready, (phases, ready)
