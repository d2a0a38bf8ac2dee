"""docs/reliability.md: written from the record of one whole run of the fault suite, and held to what was written.

`python -m smoke.faults.page` fails when the page is not, byte for byte, what the writer makes of the rows in it, or
when its seal does not fit: a row, a count or a word that was changed by hand shows in one or the other. Whoever
computes a new seal can still lie; nobody does so by mistake.
"""

from __future__ import annotations

import hashlib
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from smoke.faults.record import PAGE_PATH, Injection, Record, Subject
from smoke.runner import ROOT

PAGE = ROOT / PAGE_PATH
COMMAND = "./noxw -s faults -- --write"
HEAD = f"""# Reliability: reported faults, provoked

Written by `{COMMAND}`; do not edit. Each row is a real run of the `cpu` stack in which one fault was
provoked by real means: a signal to a process of the run, a call to the engine's own routes, or a trainer that is made
to do one thing wrong. A fault counts as detected when the run said so by its own words, with the right exit status,
within the deadline of its test; all processes, ports, shared memory and files of the run were gone; and bystanders
with the names of the stack's programs went on living. Seconds are from the provocation to the run's word.
"""
COLUMNS = ("fault", "case", "seconds to detection", "outcome", "survivors")
WRONG = "**not as it must be**"
RECOVERED = "recovered: "
SEAL = re.compile(r"^<!-- sealed: ([0-9a-f]{64}) -->\n\Z", re.MULTILINE)
ROW = re.compile(r"^\| (F\d\d) \| (.+?) \| (-|\d+\.\d) \| (.+?) \| (\d+) \|$", re.MULTILINE)
WHERE = re.compile(r"^\| revision \| (.+) \|\n\| machine \| (.+) \|$", re.MULTILINE)


class PageError(ValueError):
    """The page is not what a run has written."""


def render(record: Record, where: Subject) -> str:
    rows = sorted(record.injections, key=lambda one: (one.fault, one.case))
    tables = [*_table(_numbers(record, where)), "", *_table([COLUMNS, *map(_row, rows)])]
    body = "\n".join([HEAD, *tables, "", ""])
    return f"{body}<!-- sealed: {_seal(body)} -->\n"


def parse(text: str) -> tuple[Record, Subject]:
    """What a page was made from. Raises PageError for a page without revision, machine or rows."""
    where, rows = WHERE.search(text), ROW.findall(text)
    if where is None or not rows:
        raise PageError("it names no revision or no machine, or holds no fault")
    return Record([_injection(*row) for row in rows]), Subject(*where.groups())


def check(text: str) -> None:
    """Raise PageError unless a run has written the page as it is."""
    seal = SEAL.search(text)
    if seal is None or seal.group(1) != _seal(text[: seal.start()]):
        raise PageError("its seal does not fit: it was changed after it was written")
    if render(*parse(text)) != text:
        raise PageError("it is not what the present code writes of the same rows")


def write(record: Record, where: Subject, page: Path = PAGE) -> None:
    page.write_text(render(record, where), encoding="utf-8")


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _numbers(record: Record, where: Subject) -> list[tuple[str, ...]]:
    """What was counted and measured, each with its name; times as precise as they are shown in the rows."""
    delays = [round(one.seconds, 1) for one in record.injections if one.seconds is not None]
    recovered = sum(one.recovered for one in record.injections)
    return [
        ("faults provoked", str(len(record.injections))),
        ("ended as they must", f"{len(delays) + recovered}: {len(delays)} detected, {recovered} recovered from"),
        ("median seconds to detection", f"{statistics.median(delays):.1f}" if delays else "-"),
        ("slowest detection in seconds", f"{max(delays):.1f}" if delays else "-"),
        ("survivors", str(sum(one.survivors for one in record.injections))),
        ("revision", where.revision),
        ("machine", where.machine),
    ]


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The first row is the head."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return [lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]]


def _row(one: Injection) -> tuple[str, ...]:
    seconds = "-" if one.seconds is None else f"{one.seconds:.1f}"
    outcome = one.outcome if one.right else WRONG
    return (one.fault, one.case, seconds, outcome, str(one.survivors))


def _injection(fault: str, case: str, seconds: str, outcome: str, survivors: str) -> Injection:
    return Injection(
        fault,
        case,
        None if seconds == "-" else float(seconds),
        "" if outcome == WRONG else outcome,
        int(survivors),
        recovered=outcome.startswith(RECOVERED),
    )


def main(page: Path = PAGE) -> int:
    try:
        check(page.read_text(encoding="utf-8"))
    except (OSError, PageError) as wrong:
        sys.stderr.write(f"{page.name}: {wrong}\n  fix: {COMMAND}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
