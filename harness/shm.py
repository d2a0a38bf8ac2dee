"""Shared memory that outlives its makers: files in `/dev/shm`, which no scratch folder holds and no session ends.

vLLM names its segments at random (`psm_*`, `sem.mp-*`), and the kernel keeps no maker with them. A file is taken for a
run's leavings when it appeared during the run, belongs to this user, and no living process has it mapped or open: that
spares another run beside this one, and anybody else's programs. Only a segment that somebody else abandoned at the
same time is taken for ours. Removes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.clock import Clock, SteadyClock

FOLDER = Path("/dev/shm")
SECOND_LOOK_S = 0.2
_PROC = Path("/proc")
_DEVICE, _INODE, _MAPPED_FIELDS = 3, 4, 6
"""Positions in a line of /proc/PID/maps; see proc_pid_maps(5)."""


@dataclass(frozen=True, order=True)
class Segment:
    """One file; `device` and `inode` tell it from a later one of the same name."""

    path: Path
    device: int
    inode: int


def segments(folder: Path = FOLDER) -> frozenset[Segment]:
    """This user's files in `folder` now; none where there is no such folder."""
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return frozenset()
    found: set[Segment] = set()
    for path in entries:
        try:
            info = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid():
            found.add(Segment(path, info.st_dev, info.st_ino))
    return frozenset(found)


def abandoned(before: Iterable[Segment], folder: Path = FOLDER, clock: Clock | None = None) -> tuple[str, ...]:
    """Paths that are new since `before` and that nobody uses, at two looks: one may fall between creation and use."""
    new = _unused(segments(folder) - frozenset(before), folder)
    if not new:
        return ()
    (clock or SteadyClock()).sleep(SECOND_LOOK_S)
    return tuple(str(one.path) for one in sorted(_unused(new & segments(folder), folder)))


def _unused(candidates: frozenset[Segment], folder: Path) -> frozenset[Segment]:
    if not candidates:
        return frozenset()
    used: set[tuple[int, int]] = set()
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            used |= _mapped(entry, folder) | _open(entry, folder)
    return frozenset(one for one in candidates if (one.device, one.inode) not in used)


def _mapped(process: Path, folder: Path) -> set[tuple[int, int]]:
    """(device, inode) of the files of `folder` in the address space of `process`; none if it may not be read."""
    try:
        lines = (process / "maps").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    found: set[tuple[int, int]] = set()
    for line in lines:
        fields = line.split(maxsplit=_MAPPED_FIELDS - 1)
        if len(fields) == _MAPPED_FIELDS and fields[-1].startswith(f"{folder}/"):
            major, minor = (int(part, 16) for part in fields[_DEVICE].split(":"))
            found.add((os.makedev(major, minor), int(fields[_INODE])))
    return found


def _open(process: Path, folder: Path) -> set[tuple[int, int]]:
    """The same for the files that `process` has open."""
    found: set[tuple[int, int]] = set()
    try:
        for link in (process / "fd").iterdir():
            try:
                if str(link.readlink()).startswith(f"{folder}/"):
                    info = link.stat()
                    found.add((info.st_dev, info.st_ino))
            except FileNotFoundError:
                continue
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return found
    return found
