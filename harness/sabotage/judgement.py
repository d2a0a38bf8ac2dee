"""Whether a sabotaged run failed as declared: exactly the declared checks, the declared end, words that name it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.failure import check_headline, failure_headline
from harness.report.verdict import Outcome
from harness.sabotage.registry import Sabotage


@dataclass(frozen=True)
class Row:
    """A sabotage with what became of it. `problems` is empty when it was caught as declared."""

    sabotage: Sabotage
    red: tuple[str, ...]
    ended_in: str | None
    seconds: float
    problems: tuple[str, ...]

    @property
    def caught(self) -> bool:
        return not self.problems


def judge(sabotage: Sabotage, outcome: Outcome) -> Row:
    """Compare; the verdict has to say that it is one of a sabotaged run, too."""
    red = tuple(check.id for check in outcome.verdict.failed())
    ended_in = None if outcome.failure is None else outcome.failure.kind
    text = said(outcome)
    problems = [f"not red: {check}" for check in sabotage.fails if check not in red]
    problems += [f"red as well: {check}" for check in red if check not in sabotage.fails]
    if ended_in != sabotage.ends_in:
        problems.append(f"ended in {ended_in or 'no failure'}, declared {sabotage.ends_in or 'no failure'}")
    problems += [f"says nothing of {words!r}" for words in sabotage.words if words not in text]
    if outcome.exit_code == 0:
        problems.append("exit status 0")
    if outcome.verdict.sabotage != sabotage.name:
        problems.append(f"the verdict says that the sabotage was {outcome.verdict.sabotage}")
    return Row(sabotage, red, ended_in, outcome.verdict.phases.total, tuple(problems))


def said(outcome: Outcome) -> str:
    """What the run says of its failed checks and of its end, unwrapped."""
    lines: list[str] = []
    for check in outcome.verdict.failed():
        lines += [check_headline(check), check.found, check.why]
    if outcome.failure is not None:
        lines += [failure_headline(outcome.failure), outcome.failure.found or "", outcome.failure.where or ""]
    return "\n".join(lines)
