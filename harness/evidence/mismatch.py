"""The check on the rollouts' own tokens: engine and trainer give them the same probability, and no other version does.

Content only: no label is read. The budget is calibrated (docs/adr/0018-mismatch-budget.md) and part of the run's
configuration; what was measured stands in the check's `found`, and step by step in the events.
"""

from __future__ import annotations

import math

from harness import events
from harness.config import MismatchBudget
from harness.evidence.check import TOLERANCE, Expectation, Findings, counted
from harness.evidence.timeline import Timeline

COMPARED = 16
"""How many rollouts of a step the trainer compares at most, evenly spread over those that came back."""

TIED_SHARE = 0.5
"""Share of the compared rollouts that has to tell the versions apart. An answer of which the model is certain fits both
sides of a small step, so that not all can. Asked of float32 alone: what bfloat16 rounds may be more than a step."""


def mismatch_within_budget(run: Timeline, want: Expectation) -> Findings:
    """`policy.mismatch`: at each step k the rollouts are those of version k-1, by the trainer's own weights.

    Whether every step was taken is `training.four-steps`'s question.
    """
    budget = want.mismatch
    findings = Findings(
        expected=f"k3 <= {budget.k3:g}, mean |diff| <= {budget.mean_abs:g}, max |diff| <= {budget.max_abs:g}"
        " on the rollouts' tokens, and no other version that fits",
        proves="the rollouts were sampled from the weights that the trainer takes them to be from",
        means="the rollouts were not sampled from the weights that the trainer takes them to be from",
    )
    steps = run.require(events.Step, findings)
    tied = compared = 0
    for step in steps:
        fitting, of = _judge_fits(step, want, findings)
        _judge_numbers(step, budget, findings)
        tied, compared = tied + fitting, compared + of
    if steps:
        worst = max(steps, key=lambda step: step.mismatch.max_abs)
        findings.seen = (
            f"k3 <= {max(step.mismatch.k3 for step in steps):.1e},"
            f" mean <= {max(step.mismatch.mean_abs for step in steps):.1e},"
            f" max {worst.mismatch.max_abs:.1e} at step {worst.step};"
            f" {tied} of {counted(compared, 'rollout')} fit their version only"
        )
    return findings


def _judge_numbers(step: events.Step, budget: MismatchBudget, findings: Findings) -> None:
    measured = {"k3": step.mismatch.k3, "mean |diff|": step.mismatch.mean_abs, "max |diff|": step.mismatch.max_abs}
    limits = (budget.k3, budget.mean_abs, budget.max_abs)
    over = [
        f"{name} {value:.2g} over {limit:g}"
        for (name, value), limit in zip(measured.items(), limits, strict=True)
        if not value <= limit
    ]
    if over:
        findings.wrong.append(f"step {step.step}: {', '.join(over)}")


def _judge_fits(step: events.Step, want: Expectation, findings: Findings) -> tuple[int, int]:
    """How many rollouts fit the version that was sampled and neither neighbour, and how many were compared."""
    own, place, budget = step.step - 1, f"step {step.step}", want.mismatch
    fits = {fit.version: fit.max_abs for fit in step.fits}
    wanted = range(max(own - 1, 0), own + 2)
    if sorted(fits) != list(wanted) or len({len(gaps) for gaps in fits.values()}) != 1 or not fits[own]:
        findings.missing.append(f"{place}: no comparison of the same rollouts with each of versions {list(wanted)}")
        return 0, 0
    least = _least_compared(step.rollouts - step.errored)
    if len(fits[own]) < least:
        findings.missing.append(f"{place}: {counted(len(fits[own]), 'rollout')} compared, expected {least}")
    tied, astray = 0, []
    for rollout, gap in enumerate(fits[own]):
        others = [version for version in wanted if version != own and fits[version][rollout] <= budget.max_abs]
        if not gap <= budget.max_abs:
            astray.append(others)
        tied += gap <= budget.max_abs and not others
    if astray:
        elsewhere = sorted({version for others in astray for version in others})
        other = f"fit version {', '.join(map(str, elsewhere))}" if elsewhere else "fit no version near it"
        findings.wrong.append(f"{place}: {counted(len(astray), 'rollout')} not of version {own}: {other}")
    elif want.tolerance <= TOLERANCE and tied < TIED_SHARE * len(fits[own]):
        findings.missing.append(f"{place}: only {tied} of {counted(len(fits[own]), 'rollout')} tell versions apart")
    return tied, len(fits[own])


def _least_compared(came_back: int) -> int:
    """How many are compared where every n-th is taken, with the smallest n that leaves no more than `COMPARED`."""
    every = max(1, math.ceil(came_back / COMPARED))
    return math.ceil(came_back / every)
