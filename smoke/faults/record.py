"""What the fault suite found, and the page that it writes of that. The numbers are the run's, never a hand's."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from smoke.runner import ROOT

PAGE = ROOT / "docs" / "reliability.md"
HEAD = """# Reliability: reported faults, provoked

Written by `./noxw -s faults -- --write`; do not edit. Each row is a real run of the `cpu` stack in which one fault was
provoked by real means: a signal to a process of the run, a call to the engine's own routes, or a trainer that is made
to do one thing wrong. A fault counts as detected when the run said so by its own words, with the right exit status,
within the deadline of its test; all processes, ports, shared memory and files of the run were gone; and bystanders
with the names of the stack's programs went on living.
"""


COLUMNS = ("fault", "case", "seconds to detection", "outcome")


@dataclass
class Injection:
    """One fault. `seconds` from the provocation to the run's own word, once it was detected as it must be."""

    fault: str
    case: str
    seconds: float | None = None
    outcome: str = ""
    survivors: int = 0
    recovered: bool = False
    """Whether the run went on to its end, as it may with some faults: then there is nothing to detect."""

    @property
    def right(self) -> bool:
        return self.recovered or self.seconds is not None


@dataclass
class Record:
    injections: list[Injection] = field(default_factory=list)

    def begin(self, fault: str, case: str) -> Injection:
        self.injections.append(Injection(fault, case))
        return self.injections[-1]

    def page(self) -> str:
        rows = sorted(self.injections, key=lambda one: one.fault)
        return "\n".join([HEAD, *_table(self._numbers()), "", *_table([COLUMNS, *map(_row, rows)]), ""])

    def _numbers(self) -> list[tuple[str, ...]]:
        """What was counted and measured, each with its name."""
        delays = [one.seconds for one in self.injections if one.seconds is not None]
        recovered = sum(one.recovered for one in self.injections)
        return [
            ("faults provoked", str(len(self.injections))),
            ("ended as they must", f"{len(delays) + recovered}: {len(delays)} detected, {recovered} recovered from"),
            ("median seconds to detection", f"{statistics.median(delays):.1f}" if delays else "-"),
            ("slowest detection in seconds", f"{max(delays):.1f}" if delays else "-"),
            ("survivors", str(sum(one.survivors for one in self.injections))),
            ("machine", machine()),
        ]


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The first row is the head."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return [lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]]


def _row(one: Injection) -> tuple[str, ...]:
    seconds = "-" if one.seconds is None else f"{one.seconds:.1f}"
    return (one.fault, one.case, seconds, one.outcome if one.right else "**not as it must be**")


def machine() -> str:
    """The machine without its name: cores, memory, system."""
    memory = psutil.virtual_memory().total / 2**30
    gpu = "with a GPU" if list(Path("/dev").glob("nvidia[0-9]*")) else "no GPU"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, {gpu}"


def write(record: Record, page: Path = PAGE) -> None:
    page.write_text(record.page(), encoding="utf-8")
