"""The likely cause of a failed step, from its log and its status. Pure.

A cause is likely, not certain, and the text says so; the log's end is shown beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scripts.jobs import Jobs, fewer
from scripts.recipes.complaints import ROWS, Row

FULL_BYTES = 64 << 20
"""With less than this left, a step that failed has most likely filled the disk."""

_KILLED = frozenset({137, -9})


@dataclass(frozen=True)
class Likely:
    """What probably went wrong, and what to do about it. `name` is the row of the table."""

    name: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Evidence:
    """What a failed step has left: its status, all its output, and the bytes that are free where it worked."""

    returncode: int
    output: str
    free_bytes: int
    jobs: Jobs


def diagnose(evidence: Evidence, *, stack: str, recipe: str) -> Likely | None:
    """The first row that fits, or None: then only the log can say."""
    jobs = evidence.jobs
    words = {"stack": stack, "recipe": recipe, "used": str(max(jobs.compilers, jobs.rust)), "fewer": str(fewer(jobs))}
    # On a full disk the log is cut off, too, before it could say so.
    if evidence.free_bytes < FULL_BYTES:
        return _filled(_row("disk"), words)
    for row in ROWS:
        match = re.search(row.pattern, evidence.output, re.MULTILINE)
        if match is not None:
            return _filled(row, {**words, **{name: value or "?" for name, value in match.groupdict().items()}})
    return _filled(_row("memory"), words) if evidence.returncode in _KILLED else None


def _row(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def _filled(row: Row, words: dict[str, str]) -> Likely:
    fix = row.fix
    if row.name == "memory" and words["fewer"] == words["used"]:
        fix = "it was one compiler already: more memory or swap is needed"
    return Likely(row.name, row.cause.format_map(words), f"{fix.format_map(words)}   ({row.reference})")
