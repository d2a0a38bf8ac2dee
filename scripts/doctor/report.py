"""What the doctor found, as one JSON document and as a table for people. The table is as readable without colour."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from scripts.doctor.registry import GROUPS, STATUSES, Result

_SHOWN = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skip": "skip"}
_COLOURS = {"ok": "32", "warn": "33", "fail": "31;1", "skip": "2"}
_TITLE = 26
_INDENT = 8
_WIDTH = 110


def document(results: Sequence[Result]) -> str:
    """The `--json` answer: `docs/doctor.schema.json` describes it."""
    return json.dumps({"checks": [_as_json(result) for result in results]}, ensure_ascii=False)


def _as_json(result: Result) -> dict[str, str]:
    check, finding = result.check, result.finding
    return {
        "id": check.id,
        "status": finding.status,
        "found": finding.found,
        "required": finding.required,
        "why": check.why,
        "fix": finding.fix,
        "reference": check.reference,
    }


def table(results: Sequence[Result], stack: str, purpose: str | None, seconds: float, *, colour: bool = False) -> str:
    """Grouped lines. What is wrong is followed by what is required, why, the fix and where to read on."""
    lines = [f"doctor: stack {stack}, {purpose or 'build, install, run'}"]
    for group, title in GROUPS.items():
        inside = [result for result in results if result.check.group == group]
        if inside:
            lines += ["", title]
        for result in inside:
            if result.finding.status != "skip":
                lines += _entry(result, colour=colour)
        lines += _skipped(inside, colour=colour)
    return "\n".join([*lines, "", summary(results, seconds)])


def summary(results: Sequence[Result], seconds: float) -> str:
    """The last line: the verdict, and how many checks came out how."""
    counts = {status: sum(result.finding.status == status for result in results) for status in STATUSES}
    verdict = "FAIL" if counts["fail"] else "PASS"
    parts = (
        f"{counts['fail']} failed",
        f"{counts['warn']} to know about",
        f"{counts['ok']} ok",
        f"{counts['skip']} skipped",
    )
    return f"{verdict}  {', '.join(parts)} ({seconds:.1f} s)"


def _skipped(results: Sequence[Result], *, colour: bool) -> list[str]:
    """What was not looked at, by its reason: a stack without GPUs has many of the same."""
    titles: dict[str, list[str]] = {}
    for result in results:
        if result.finding.status == "skip":
            titles.setdefault(result.finding.found, []).append(result.check.title)
    lines: list[str] = []
    for reason, skipped in titles.items():
        first, *rest = textwrap.wrap(f"{reason}: {', '.join(skipped)}", _WIDTH - _INDENT, break_on_hyphens=False)
        lines += [f"  {_status('skip', colour=colour)}  {first}", *(f"{'':<{_INDENT}}{line}" for line in rest)]
    return lines


def _status(status: str, *, colour: bool) -> str:
    shown = f"{_SHOWN[status]:<4}"
    return f"\x1b[{_COLOURS[status]}m{shown}\x1b[0m" if colour else shown


def _entry(result: Result, *, colour: bool) -> list[str]:
    check, finding = result.check, result.finding
    lines = [f"  {_status(finding.status, colour=colour)}  {check.title:<{_TITLE}} {finding.found}"]
    if finding.fix:
        lines += [
            _detail("needs", finding.required),
            _detail("why", check.why),
            _detail("fix", finding.fix),
            _detail("see", check.reference),
        ]
    return lines


def _detail(label: str, value: str) -> str:
    return f"{'':<{_INDENT}}{label:<6}{value}"
