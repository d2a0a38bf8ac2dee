"""The default run on this machine: it passes, and what it leaves says how."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

from smoke.runner import Outcome, assert_nothing_left

CHECKS = [
    "stack.pins-installed",
    "discovery.topology",
    "training.four-steps",
    "training.rewards",
    "policy.versions-advance",
    "policy.weights-match",
    "policy.weights-changed",
    "policy.mismatch",
    "generation.after-update",
    "engine.not-paused",
    "stack.same-processes",
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
