"""What the doctor found, as one JSON document and as a table for people. The table is as readable without colour."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scripts.doctor.registry import GROUPS, STATUSES, Result

_SHOWN = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skip": "skip"}
_COLOURS = {"ok": "32", "warn": "33", "fail": "31;1", "skip": "2"}
_LABEL = 12
_TITLE = 30


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
            lines += _entry(result, colour=colour)
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


def _entry(result: Result, *, colour: bool) -> list[str]:
    check, finding = result.check, result.finding
    status = f"{_SHOWN[finding.status]:<4}"
    if colour:
        status = f"\x1b[{_COLOURS[finding.status]}m{status}\x1b[0m"
    lines = [f"  {status}  {check.title:<{_TITLE}} {finding.found}"]
    if finding.fix:
        lines += [
            _detail("needs", finding.required),
            _detail("why", check.why),
            _detail("fix", finding.fix),
            _detail("see", check.reference),
        ]
    return lines


def _detail(label: str, value: str) -> str:
    return f"        {label:<{_LABEL - 6}}{value}"
