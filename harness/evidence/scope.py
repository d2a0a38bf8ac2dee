"""Which checks a run is judged by: all of them, unless a part is missing that some of them need to see.

A check that is out of a run's scope stays in its verdict: skipped, with the reason, and never passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.evidence import command
from harness.evidence.check import Expectation, Findings
from harness.evidence.timeline import Timeline

Judge = Callable[[Timeline, Expectation], Findings]

NOT_JUDGED = "not judged: "

OBSERVED: Mapping[str, Judge] = {
    "training.command": command.command_ended,
    "policy.versions-advance": command.versions_advance,
    "policy.weights-changed": command.weights_changed,
    "engine.not-paused": command.not_paused,
}
"""What is judged otherwise, or only, where the trainer is a command of the caller's."""

OF_COMMANDS_ONLY = "training.command"
BEFORE = "training.four-steps"
"""The place of the one in the order of the other."""

UNTOLD: Mapping[str, str] = {
    "training.four-steps": "a command's steps are its own account",
    "training.rewards": "a command's rewards are its own account",
    "training.rollouts-served": "a command's rollouts are its own account",
    "policy.mismatch": "a command does not tell the log-probabilities that it computes",
    "policy.cache-reset": "a command does not wait after each update while the cache is looked at",
    "policy.versions-spans": "a command does not tell from which versions it samples",
    "policy.generations-in-flight": "a command is not asked to pause in another way than its own",
    "policy.weights-covered": "a command does not announce its tensors",
    "policy.weights-destroyed": "a command may sample before its first update, so that nothing was destroyed",
    "policy.weights-digests": "a command does not tell digests of its weights",
    "policy.weights-match": "a command does not answer the probes as a reference",
    "policy.weights-restored": "a command is not asked to perturb its weights",
}
"""Why a check of our own trainer's runs says nothing about a command's."""

ELSE_UNTOLD = "it needs a trainer's own evidence"

UNTOUCHED = frozenset(
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

ABSENT: Mapping[str, str] = {"discovery.topology": "the engine alone is in no discovery"}
"""Why a check says nothing about an engine without Dynamo."""


UNNAMED: Mapping[str, str] = {
    "policy.versions-spans": "only the workers of such an engine name a version, its outputs do not",
    "policy.generations-in-flight": "the outputs of such an engine name no version that they could be held to",
}
"""Why a check says nothing about an engine without routes for weights."""

UNCOUNTED: Mapping[str, str] = {
    "policy.cache-reset": "such an engine does not say how many tokens of a prompt came from its cache"
}
"""Why a check says nothing about an engine whose answers have no details of their prompt's tokens."""


def out_of_scope(checks: Mapping[str, Judge], want: Expectation) -> dict[str, str]:
    """The checks that a run like this says nothing about, however it goes, each with its reason."""
    missing = {
        **({} if want.sidecars else ABSENT),
        **({} if want.engine_labels else UNNAMED),
        **({} if want.counts_cached_tokens else UNCOUNTED),
    }
    reasons = {check_id: reason for check_id, reason in missing.items() if check_id in checks}
    if want.own_trainer:
        untold = [check_id for check_id in checks if check_id not in OBSERVED and check_id not in UNTOUCHED]
        reasons |= {check_id: UNTOLD.get(check_id, ELSE_UNTOLD) for check_id in untold}
    return reasons


def in_scope(checks: Mapping[str, Judge], want: Expectation) -> dict[str, Judge]:
    """Every check as this run is judged by it, in order."""
    reasons = out_of_scope(checks, want)
    scoped: dict[str, Judge] = {}
    for check_id, check in checks.items():
        if check_id == BEFORE and want.own_trainer:
            scoped[OF_COMMANDS_ONLY] = OBSERVED[OF_COMMANDS_ONLY]
        observed = OBSERVED.get(check_id) if want.own_trainer else None
        reason = reasons.get(check_id)
        scoped[check_id] = observed or (check if reason is None else _unjudged(check, reason))
    return scoped


def _unjudged(check: Judge, reason: str) -> Judge:
    """The check as one that this run says nothing about; what it would prove stays the same."""

    def judge(run: Timeline, want: Expectation) -> Findings:
        asked = check(Timeline((), ()), want)
        return replace(
            asked, seen="not judged", wrong=[], missing=[], not_asked=f"{NOT_JUDGED}{reason}", always_due=False
        )

    return judge
