"""Evidence: the events of a run in, judged checks out. Pure: no file, no clock, no network.

Missing evidence is a failed check, never a passed one; only a run that ended early leaves checks unjudged (`skip`), and
even then everything that was recorded counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.evidence import adapters, cache, content, gpus, inflight, mismatch, policy, stack, training, versions
from harness.evidence.check import Check, Expectation, Findings, Status
from harness.evidence.coverage import weights_covered
from harness.evidence.exposure import loopback_only
from harness.evidence.policy import agreed_versions
from harness.evidence.rollouts import rollouts_served
from harness.evidence.scope import in_scope, out_of_scope
from harness.evidence.timeline import Timeline

__all__ = [
    "CHECKS",
    "ON_GPUS",
    "WITH_ADAPTERS",
    "Check",
    "Expectation",
    "Findings",
    "Status",
    "Timeline",
    "agreed_versions",
    "evaluate",
    "judge",
]

CHECKS: Mapping[str, Callable[[Timeline, Expectation], Findings]] = {
    "stack.pins-installed": stack.pins_installed,
    "discovery.topology": stack.topology_discovered,
    "training.four-steps": training.steps_taken,
    "training.rewards": training.rewards_earned,
    "training.rollouts-served": rollouts_served,
    "policy.versions-advance": policy.versions_advance,
    "policy.weights-covered": weights_covered,
    "policy.weights-destroyed": content.weights_destroyed,
    "policy.weights-digests": content.weights_digests,
    "policy.weights-match": policy.weights_match,
    "policy.weights-changed": policy.weights_changed,
    "policy.weights-restored": content.weights_restored,
    "policy.mismatch": mismatch.mismatch_within_budget,
    "policy.cache-reset": cache.cache_reset,
    "policy.versions-spans": versions.versions_in_outputs,
    "policy.generations-in-flight": inflight.generations_in_flight,
    "generation.after-update": stack.generation_after_update,
    "engine.not-paused": stack.not_paused,
    "stack.same-processes": stack.same_processes,
    "stack.loopback-only": loopback_only,
    "teardown.clean": stack.teardown_clean,
}
"""Every check in the order of a run. The name `training.four-steps` stands for whatever number was configured."""

ON_GPUS: Mapping[str, Callable[[Timeline, Expectation], Findings]] = {
    "teardown.gpu-memory": gpus.memory_given_back,
}
"""What a run on GPUs has to pass as well."""


WITH_ADAPTERS: Mapping[str, Callable[[Timeline, Expectation], Findings]] = {
    "generation.lora-adapter": adapters.adapter_served,
}
"""What a run with `--lora` has to pass as well."""


def checks_of(want: Expectation) -> Mapping[str, Callable[[Timeline, Expectation], Findings]]:
    """The checks that such a run is judged by, in order."""
    asked = {**(WITH_ADAPTERS if want.lora else {}), **(ON_GPUS if want.gpus else {})}
    return {**in_scope(CHECKS, want), **asked}


def unjudged_checks(want: Expectation) -> list[str]:
    """Ids of the checks that such a run says nothing about, however it goes."""
    return list(out_of_scope(CHECKS, want))


def evaluate(recorded: Iterable[Mapping[str, Any]], want: Expectation) -> list[Check]:
    """Judge the events of one run, as decoded from `events.jsonl`."""
    return judge(Timeline.read(recorded), want)


def judge(run: Timeline, want: Expectation) -> list[Check]:
    """The same for events that are read already."""
    ended_in = None if run.failure is None else run.failure.kind
    return [check(run, want).judge(check_id, ended_in) for check_id, check in checks_of(want).items()]
