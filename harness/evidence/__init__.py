"""Evidence: the events of a run in, judged checks out. Pure: no file, no clock, no network.

Missing evidence is a failed check, never a passed one; only a run that ended early leaves checks unjudged (`skip`), and
even then everything that was recorded counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.evidence import command, content, policy, stack, training
from harness.evidence.check import Check, Expectation, Findings, Status
from harness.evidence.coverage import weights_covered
from harness.evidence.exposure import loopback_only
from harness.evidence.policy import agreed_versions
from harness.evidence.timeline import Timeline

__all__ = ["CHECKS", "Check", "Expectation", "Findings", "Status", "Timeline", "agreed_versions", "evaluate", "judge"]

CHECKS: Mapping[str, Callable[[Timeline, Expectation], Findings]] = {
    "stack.pins-installed": stack.pins_installed,
    "discovery.topology": stack.topology_discovered,
    "training.four-steps": training.steps_taken,
    "training.rewards": training.rewards_earned,
    "policy.versions-advance": policy.versions_advance,
    "policy.weights-covered": weights_covered,
    "policy.weights-destroyed": content.weights_destroyed,
    "policy.weights-digests": content.weights_digests,
    "policy.weights-match": policy.weights_match,
    "policy.weights-changed": policy.weights_changed,
    "policy.weights-restored": content.weights_restored,
    "generation.after-update": stack.generation_after_update,
    "engine.not-paused": stack.not_paused,
    "stack.same-processes": stack.same_processes,
    "stack.loopback-only": loopback_only,
    "teardown.clean": stack.teardown_clean,
}
"""Every check in the order of a run. The name `training.four-steps` stands for whatever number was configured."""

OBSERVED: Mapping[str, Callable[[Timeline, Expectation], Findings]] = {
    "training.command": command.command_ended,
    "policy.versions-advance": command.versions_advance,
    "policy.weights-changed": command.weights_changed,
    "engine.not-paused": command.not_paused,
}
"""What is judged otherwise, or only, where the trainer is a command of the caller's."""

UNCHANGED = frozenset(
    {
        "stack.pins-installed",
        "discovery.topology",
        "generation.after-update",
        "stack.same-processes",
        "stack.loopback-only",
        "teardown.clean",
    }
)
"""Checks that ask nothing of a trainer."""


def checks_of(want: Expectation) -> Mapping[str, Callable[[Timeline, Expectation], Findings]]:
    """The checks of such a run. Of a command's, those that need a trainer of ours are there, and never judged."""
    if not want.own_trainer:
        return CHECKS
    judged: dict[str, Callable[[Timeline, Expectation], Findings]] = {}
    for check_id, check in CHECKS.items():
        if check_id == "training.four-steps":
            judged["training.command"] = OBSERVED["training.command"]
        asks_nothing = check_id in UNCHANGED
        judged[check_id] = OBSERVED.get(check_id) or (check if asks_nothing else command.not_judged(check_id, check))
    return judged


def unjudged_checks(want: Expectation) -> list[str]:
    """Ids of the checks that a run like this says nothing about, however it goes."""
    return [check_id for check_id in checks_of(want) if want.own_trainer and check_id not in {*OBSERVED, *UNCHANGED}]


def evaluate(recorded: Iterable[Mapping[str, Any]], want: Expectation) -> list[Check]:
    """Judge the events of one run, as decoded from `events.jsonl`."""
    return judge(Timeline.read(recorded), want)


def judge(run: Timeline, want: Expectation) -> list[Check]:
    """The same for events that are read already."""
    ended_in = None if run.failure is None else run.failure.kind
    return [check(run, want).judge(check_id, ended_in) for check_id, check in checks_of(want).items()]
