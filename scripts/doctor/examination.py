"""All checks side by side, with one deadline: whatever a check does, there is a finding for it.

A check that raises and one that hangs are findings of status `fail` that say so. Nothing is passed over.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scripts.doctor import facts
from scripts.doctor.checks import CHECKS
from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import Machine
from scripts.doctor.real_machine import RealMachine
from scripts.doctor.redact import redacted
from scripts.doctor.registry import Check, Finding, Result, fail, skip
from scripts.doctor.subject import Options, Subject
from scripts.errors import DoctorError, UsageError

LIMIT_S = 9.0
"""For all checks together. Every question has a shorter limit of its own."""

_SUDO = re.compile(r"\bsudo ")

_LINES = "\n            "
"""Between the lines of one field of an error: below the first one, where `errors` begins it."""


def examine(
    root: Path,
    stack: str,
    purpose: str | None = None,
    options: Options | None = None,
    *,
    machine: Machine | None = None,
    checks: Sequence[Check] = CHECKS,
    limit_s: float = LIMIT_S,
) -> list[Result]:
    """What the checks find that `purpose` needs (build, install or run; None for all), in the registry's order.

    `stack` names a folder of `stacks/` that exists.
    """
    asked = options or Options()
    subject = Subject(root, _chosen(facts.read(root, stack), asked), machine or RealMachine(), purpose, asked)
    wanted = [check for check in checks if subject.purpose is None or subject.purpose in check.needed_for]
    try:
        return look_at(subject, wanted, limit_s)
    finally:
        subject.machine.close()


def _chosen(stack: StackFacts, options: Options) -> StackFacts:
    """The stack with no more recipes than are to be built."""
    if options.recipes is None:
        return stack
    return replace(stack, recipes={name: stack.recipes[name] for name in stack.recipes if name in options.recipes})


def require(
    root: Path,
    stack: str,
    purpose: str,
    options: Options | None = None,
    *,
    machine: Machine | None = None,
    checks: Sequence[Check] = CHECKS,
    ignored: Sequence[str] = (),
) -> list[Result]:
    """`examine`, and raise `DoctorError` with every failed check and its fix when there is one.

    Checks that are `ignored` may fail. Raises `UsageError` for an id that no check has.
    """
    unknown = sorted(set(ignored) - {check.id for check in checks})
    if unknown:
        raise UsageError(
            f"there is no check named {', '.join(unknown)}",
            hint="docs/troubleshooting.md   # lists them, as does ./noxw -s doctor",
        )
    results = examine(root, stack, purpose, options, machine=machine, checks=checks)
    failed = [each for each in failures(results) if each.check.id not in ignored]
    if failed:
        raise refusal(failed, stack, purpose)
    return results


def failures(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.finding.status == "fail"]


def refusal(failed: Sequence[Result], stack: str, purpose: str) -> DoctorError:
    """The error for failed checks: each with what was found, and with its fix on a line of its own."""
    what = f"{len(failed)} things" if len(failed) > 1 else "one thing"
    return DoctorError(
        f"this machine lacks {what} to {purpose} the stack {stack}",
        expected=_LINES.join(f"{each.check.id}: {each.finding.required}" for each in failed),
        found=_LINES.join(f"{each.check.id}: {each.finding.found}" for each in failed),
        hint=_LINES.join(each.finding.fix for each in failed),
    )


def look_at(subject: Subject, checks: Sequence[Check], limit_s: float = LIMIT_S) -> list[Result]:
    """Every check in a thread of its own. A thread that hangs is left behind: it ends with the process."""
    found: dict[str, Finding] = {}
    threads = []
    for check in checks:
        thread = threading.Thread(target=_look, args=(check, subject, found), name=check.id, daemon=True)
        thread.start()
        threads.append(thread)
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    results = []
    for check in checks:
        finding = found.get(check.id) or _unfinished(check, subject, limit_s)
        results.append(Result(check, redacted(_for_user(finding, subject), subject.machine.home)))
    return results


def _for_user(finding: Finding, subject: Subject) -> Finding:
    """Root needs no sudo, and a container has none."""
    return replace(finding, fix=_SUDO.sub("", finding.fix)) if subject.machine.user_id() == 0 else finding


def _look(check: Check, subject: Subject, found: dict[str, Finding]) -> None:
    if subject.stack.unread and check.group != "host":
        found[check.id] = skip(
            f"what this stack needs is not known: {subject.stack.unread}", "a stack file that is read"
        )
        return
    try:
        found[check.id] = check.look(subject)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown, and the other checks go on
        where = traceback.extract_tb(error.__traceback__)[-1]
        found[check.id] = fail(
            f"the doctor itself failed: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})",
            "a check that ends with a finding",
            _alone(check, subject) + "   # a fault of the doctor: please report what it prints",
        )


def _unfinished(check: Check, subject: Subject, limit_s: float) -> Finding:
    return fail(
        f"no answer within {limit_s:g} s",
        "a machine whose files and programs answer",
        _alone(check, subject) + "   # something that it looks at hangs: a dead mount, or a program",
    )


def _alone(check: Check, subject: Subject) -> str:
    return f"python3 -m scripts.doctor --stack {subject.stack.name} --check {check.id}"
