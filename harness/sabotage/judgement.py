"""Whether a sabotaged run failed as declared: exactly the declared checks, the declared end, words that name it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.report.failure import check_headline, failure_headline
from harness.report.verdict import Outcome
from harness.sabotage.declaration import Sabotage


@dataclass(frozen=True)
class Row:
    """A sabotage with what became of it. `problems` is empty when it was caught as declared.

    `run_dir` is None where no run could be begun.
    """

    sabotage: Sabotage
    red: tuple[str, ...]
    ended_in: str | None
    seconds: float
    problems: tuple[str, ...]
    run_dir: Path | None

    @property
    def caught(self) -> bool:
        return not self.problems


def judge(sabotage: Sabotage, outcome: Outcome) -> Row:
    """Compare; the verdict has to say that it is one of a sabotaged run, too.

    Whatever failed has to say all the words that are declared for it: a check that is red for another reason than the
    fault is not what was declared, whatever another check says.
    """
    red = tuple(check.id for check in outcome.verdict.failed())
    ended_in = None if outcome.failure is None else outcome.failure.kind
    accounts = said(outcome)
    problems = [f"not red: {check}" for check in sabotage.fails if check not in red]
    problems += [f"red as well: {check}" for check in red if check not in sabotage.fails]
    if ended_in != sabotage.ends_in:
        problems.append(f"ended in {ended_in or 'no failure'}, declared {sabotage.ends_in or 'no failure'}")
    problems += [
        f"gives another reason: {who} says nothing of {words!r}"
        for who, declared in sabotage.reasons.items()
        for words in declared
        if who in accounts and words not in accounts[who]
    ]
    if outcome.exit_code == 0:
        problems.append("exit status 0")
    if outcome.verdict.sabotage != sabotage.name:
        problems.append(f"the verdict says that the sabotage was {outcome.verdict.sabotage}")
    return Row(sabotage, red, ended_in, outcome.verdict.phases.total, tuple(problems), outcome.run_dir)


def said(outcome: Outcome) -> dict[str, str]:
    """What the run says of each failed check, and under the failure's kind of its end; unwrapped."""
    accounts = {
        check.id: "\n".join([check_headline(check), check.found, check.why]) for check in outcome.verdict.failed()
    }
    if outcome.failure is not None:
        failure = outcome.failure
        accounts[failure.kind] = "\n".join([failure_headline(failure), failure.found or "", failure.where or ""])
    return accounts
