"""Reads the kernel's table of processes (`/proc`); starts and signals nothing.

A process is known by its pid *and* its start time: a pid alone may be another process's a moment later.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
# Positions in /proc/PID/stat after the command's closing parenthesis; see proc_pid_stat(5), whose fields count from 1.
_STATE, _PARENT, _SESSION, _START_TIME = 0, 1, 3, 19
_COMMAND_CHARACTERS = 200


@dataclass(frozen=True, order=True)
class ProcessId:
    """One process for good. `start_time` is in clock ticks since the machine's boot."""

    pid: int
    start_time: int


@dataclass(frozen=True)
class ProcessRow:
    """One line of the process table. `state` is the kernel's letter: Z for a zombie, T for a stopped process."""

    id: ProcessId
    parent: int
    session: int
    state: str

    @property
    def pid(self) -> int:
        return self.id.pid

    @property
    def ended(self) -> bool:
        """A zombie has ended: it holds nothing but its exit status."""
        return self.state in ("Z", "X", "x")

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")


class ProcessTable(Mapping[int, ProcessRow]):
    """The processes of one moment, by pid."""

    def __init__(self, rows: Iterable[ProcessRow]) -> None:
        self._rows = {row.pid: row for row in rows}

    @classmethod
    def read(cls) -> ProcessTable:
        """The processes that this user may see. One that ends meanwhile is left out."""
        pids = (int(name) for name in os.listdir(_PROC) if name.isdecimal())  # noqa: PTH208 - as in read_row
        return cls(row for pid in pids if (row := read_row(pid)) is not None)

    def __getitem__(self, pid: int) -> ProcessRow:
        return self._rows[pid]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, process: ProcessId) -> ProcessRow | None:
        """The row of exactly this process, not of a later one with its pid."""
        row = self.get(process.pid)
        return row if row is not None and row.id == process else None

    def ancestors(self, pid: int) -> frozenset[int]:
        """`pid` and every process above it."""
        found: set[int] = set()
        while pid in self._rows and pid not in found:
            found.add(pid)
            pid = self._rows[pid].parent
        return frozenset(found)


def read_row(pid: int) -> ProcessRow | None:
    """The row of `pid` now, or None when there is no such process.

    It is read of every process of the machine several times a second, while others need the cores: hence no pathlib.
    """
    try:
        with open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name may itself hold spaces and parentheses: the last one closes it.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessRow(
        ProcessId(pid, int(fields[_START_TIME])),
        parent=int(fields[_PARENT]),
        session=int(fields[_SESSION]),
        state=fields[_STATE].decode(),
    )


def read_boot_id() -> str:
    """Which boot of the machine this is: start times, and so process ids, mean something within one boot only."""
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()


def environment_of(pid: int) -> dict[str, str]:
    """The environment that `pid` began with; empty when it ended, overwrote it, or belongs to someone else."""
    try:
        block = (_PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def command_of(pid: int) -> str:
    """The command line of `pid` for people, shortened; its short name in brackets when it has none."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        name = (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "(ended)"
    line = shlex.join(word for word in words if word) or f"[{name}]"
    return line if len(line) <= _COMMAND_CHARACTERS else line[: _COMMAND_CHARACTERS - 1] + "…"
