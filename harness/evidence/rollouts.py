"""The check on where rollouts were answered: the engines' own counts, looked at before and after each step.

Rollouts go through the frontend, which spreads them; that an engine was refitted says nothing of whether anything is
ever asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import events
from harness.evidence.check import Expectation, Findings, counted, span
from harness.evidence.timeline import Timeline


def rollouts_served(run: Timeline, want: Expectation) -> Findings:
    """`training.rollouts-served`: between versions k-1 and k the engines together finish step k's rollouts, each some.

    The count of a request may lag behind its answer, so that more than the rollouts may fall into a step, and not less.
    """
    each = "the engine" if want.engines == 1 else f"{want.engines} engines, each of them some"
    findings = Findings(
        expected=f"the rollouts of steps {span(range(1, want.steps + 1))} finished by {each}",
        proves="the rollouts were answered by the engines that are refitted, and by every one of them",
        means="an engine that is refitted was not asked for rollouts, or others than these answered them",
    )
    steps = {step.step: step for step in run.require(events.Step, findings)}
    observed = {item.version: item for item in run.require(events.Observed, findings)}
    shares: dict[str, list[int]] = {engine.name: [] for engine in want.fleet}
    for number in range(1, want.steps + 1):
        served = _served(number, observed, want, findings)
        step = steps.get(number)
        if served is None or step is None:
            continue
        for name, count in served.items():
            shares[name].append(count)
        idle = [name for name, count in served.items() if count < 1]
        if idle:
            findings.wrong.append(f"step {number}: {', '.join(idle)} finished no request")
        elif sum(served.values()) < step.rollouts - step.errored:
            findings.wrong.append(
                f"step {number}: {counted(step.rollouts - step.errored, 'rollout')} came back,"
                f" the engines finished {sum(served.values())}"
            )
    if all(shares.values()):
        findings.seen = ", ".join(f"{name} finished {_range(counts)} a step" for name, counts in shares.items())
    return findings


def _range(counts: Sequence[int]) -> str:
    few, many = min(counts), max(counts)
    return str(few) if few == many else f"{few} to {many}"


def _served(
    number: int, observed: dict[int, events.Observed], want: Expectation, findings: Findings
) -> dict[str, int] | None:
    """Requests that each engine finished between the observations around the step; None, and noted, if unknown."""
    before, after = (_counts(observed.get(version)) for version in (number - 1, number))
    served: dict[str, int] = {}
    for engine in want.fleet:
        first, last = before.get(engine.admin_url), after.get(engine.admin_url)
        if first is None or last is None:
            findings.missing.append(f"step {number}: {engine.name} did not tell how many requests it finished")
            continue
        if last.before < first.after:
            findings.missing.append(f"step {number}: {engine.name} began to count anew")
            continue
        served[engine.name] = last.before - first.after
    return served if len(served) == want.engines else None


def _counts(observed: events.Observed | None) -> dict[str, events.FinishedRequests]:
    engines = () if observed is None else observed.engines
    return {engine.admin_url: engine.finished for engine in engines if engine.finished is not None}
