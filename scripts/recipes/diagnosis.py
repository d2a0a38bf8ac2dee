"""The likely cause of a failed step, from its log and its status. Pure.

A cause is likely, not certain, and the text says so; the log's end is shown beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scripts.jobs import Jobs, fewer
from scripts.recipes.complaints import ROWS, Row

_KILLED = frozenset({137, -9})


@dataclass(frozen=True)
class Likely:
    """What probably went wrong, and what to do about it. `name` is the row of the table."""

    name: str
    cause: str
    fix: str


def diagnose(returncode: int, output: str, jobs: Jobs, *, stack: str, recipe: str) -> Likely | None:
    """The first row that fits, or None: then only the log can say."""
    words = {"stack": stack, "recipe": recipe, "used": str(max(jobs.compilers, jobs.rust)), "fewer": str(fewer(jobs))}
    for row in ROWS:
        match = re.search(row.pattern, output, re.MULTILINE)
        if match is not None:
            return _filled(row, {**words, **{name: value or "?" for name, value in match.groupdict().items()}})
    if returncode in _KILLED:
        return _filled(next(row for row in ROWS if row.name == "memory"), words)
    return None


def _filled(row: Row, words: dict[str, str]) -> Likely:
    fix = row.fix
    if row.name == "memory" and words["fewer"] == words["used"]:
        fix = "it was one compiler already: more memory or swap is needed"
    return Likely(row.name, row.cause.format_map(words), f"{fix.format_map(words)}   ({row.reference})")
