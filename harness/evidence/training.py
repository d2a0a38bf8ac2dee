"""Checks on the training: that it took every step it was asked for, and had something to learn from."""

from __future__ import annotations

import math

from harness import events
from harness.evidence.check import Expectation, Findings, counted, span
from harness.evidence.timeline import Timeline

RIGHT = 1.0
"""Reward of a right answer; anything below is a wrong one."""


def steps_taken(run: Timeline, want: Expectation) -> Findings:
    """`training.four-steps`: N optimizer steps and N+1 refits, in order, all with finite numbers."""
    findings = Findings(
        expected=f"{counted(want.steps, 'step')} with finite loss and gradient, refits {span(want.versions)}, in order",
        proves="the trainer took every step, and sent every version to the engines, as it says itself",
        means="the trainer did not do the optimizer steps that were asked for",
    )
    steps = run.require(events.Step, findings)
    refits = run.require(events.Refit, findings)
    done = run.require(events.TrainerDone, findings)
    _compare_order("steps", [step.step for step in steps], list(range(1, want.steps + 1)), findings)
    _compare_order("refits", [refit.version for refit in refits], list(want.versions), findings)
    findings.wrong += [f"the trainer reports {item.steps} steps" for item in done if item.steps != want.steps]
    if done:
        findings.wrong += [f"{kind} came after the trainer was done" for kind in _said_after(run, done[0])]
    for step in steps:
        _judge_step(step, findings)
    findings.seen = f"{counted(len(steps), 'step')}, {counted(len(refits), 'refit')}"
    if steps:
        findings.seen += f", last loss {steps[-1].loss:.4g}"
    return findings


def _compare_order(what: str, found: list[int], wanted: list[int], findings: Findings) -> None:
    """A shorter list with the right beginning lacks evidence; any other difference is a contradiction."""
    if found == wanted:
        return
    if found == wanted[: len(found)]:
        if found:
            findings.missing.append(f"{what} {', '.join(map(str, wanted[len(found) :]))}")
        return
    findings.wrong.append(f"{what} came as {', '.join(map(str, found))}")


def _said_after(run: Timeline, done: events.TrainerDone) -> list[str]:
    """Kinds of the trainer's events after it was done. Nobody waits for these, so nobody saw them in their place."""
    later = run.entries[run.position(done) + 1 :]
    return [event.kind for event in later if event.source == "trainer"]


def _judge_step(step: events.Step, findings: Findings) -> None:
    numbers = {"loss": step.loss, "gradient norm": step.grad_norm}
    findings.wrong += [f"step {step.step}: {name} is {v}" for name, v in numbers.items() if not math.isfinite(v)]
    if step.tokens == 0:
        findings.wrong.append(f"step {step.step} trained on no tokens")


def rewards_earned(run: Timeline, want: Expectation) -> Findings:
    """`training.rewards`: a finite reward for each rollout asked for, and one group with right and wrong answers."""
    findings = Findings(
        expected=f"a finite reward for each of {counted(want.rollouts, 'rollout')} a step, none errored,"
        " a group with both right and wrong answers",
        proves="the rollouts gave the optimizer something to learn from",
        means="the rollouts gave the optimizer nothing sound to learn from",
    )
    steps = run.require(events.Step, findings)
    groups = [group for step in steps for group in step.rewards.groups]
    for step in steps:
        _judge_rollouts(step, want, findings)
    mixed = sum(_is_mixed(group) for group in groups)
    findings.seen = f"{mixed} of {counted(len(groups), 'group')} mixed"
    if steps:
        findings.seen += f", mean reward {steps[0].rewards.mean:.2f} to {steps[-1].rewards.mean:.2f}"
    if groups and not mixed:
        (findings.wrong if len(steps) >= want.steps else findings.missing).append(
            "no group with right and wrong answers"
        )
    return findings


def _judge_rollouts(step: events.Step, want: Expectation, findings: Findings) -> None:
    rewards = [reward for group in step.rewards.groups for reward in group.rewards]
    if not rewards:
        findings.missing.append(f"no rewards in step {step.step}")
    elif len(rewards) != step.rollouts - step.errored:
        findings.wrong.append(
            f"step {step.step}: {counted(len(rewards), 'reward')} for"
            f" {counted(step.rollouts - step.errored, 'rollout')} that came back"
        )
    if step.rollouts != want.rollouts:
        findings.wrong.append(f"step {step.step}: {counted(step.rollouts, 'rollout')}, configured {want.rollouts}")
    if not all(math.isfinite(value) for value in (*rewards, step.rewards.mean, step.rewards.std)):
        findings.wrong.append(f"step {step.step} has a reward that is not finite")
    if step.errored:
        reasons = f" ({'; '.join(step.errors)[:120]})" if step.errors else ""
        findings.wrong.append(
            f"step {step.step}: {step.errored} of {counted(step.rollouts, 'rollout')} errored{reasons}"
        )


def _is_mixed(group: events.RewardGroup) -> bool:
    return any(reward >= RIGHT for reward in group.rewards) and any(reward < RIGHT for reward in group.rewards)
