"""Shared memory that outlives its makers: files in `/dev/shm`, which no scratch folder holds and no session ends.

vLLM shares hundreds of megabytes between its processes under random names (`psm_*`, `sem.mp-*`), and an engine that is
killed leaves them. The kernel keeps no maker with a file. So it is noted, while the run goes on, which files its own
processes hold: these are removed once no living process has them mapped or open. Any other file that appeared during
the run, belongs to this user and is used by nobody is only named: it may be another's that was abandoned meanwhile.
What a living process uses is touched by nobody, so that runs beside each other do not meet.
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

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode


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


class SharedMemory:
    """The segments of one run, from its start on; or from later on, when `held_by` are the processes it has by then."""

    def __init__(self, folder: Path = FOLDER, clock: Clock | None = None, held_by: Iterable[int] = ()) -> None:
        self._folder = folder
        self._clock = clock or SteadyClock()
        self._before = segments(folder)
        held = _held(held_by, folder)
        self._own = {one for one in self._before if one.file in held}

    def note(self, pids: Iterable[int]) -> None:
        """Remember what these processes, which are the run's, hold now: another process of theirs may end with it."""
        candidates = segments(self._folder) - self._before - self._own
        if candidates:
            held = _held(pids, self._folder)
            self._own |= {one for one in candidates if one.file in held}

    def remove_own(self) -> tuple[str, ...]:
        """Remove what the run's processes left; returns the paths that somebody still uses."""
        unused = self._unused(self._own & segments(self._folder))
        for one in unused:
            one.path.unlink(missing_ok=True)
        return tuple(str(one.path) for one in sorted(self._own & segments(self._folder)))

    def abandoned(self) -> tuple[str, ...]:
        """Paths that are new since the run's start, used by nobody, and were never seen with a process of the run."""
        new = self._unused(segments(self._folder) - self._before - self._own)
        if not new:
            return ()
        # It may have been looked at between its creation and its use.
        self._clock.sleep(SECOND_LOOK_S)
        return tuple(str(one.path) for one in sorted(self._unused(new & segments(self._folder))))

    def _unused(self, candidates: Iterable[Segment]) -> frozenset[Segment]:
        wanted = frozenset(candidates)
        if not wanted:
            return wanted
        used = _held((int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()), self._folder)
        return frozenset(one for one in wanted if one.file not in used)


def _held(pids: Iterable[int], folder: Path) -> set[tuple[int, int]]:
    """(device, inode) of the files of `folder` that these processes have mapped or open, as far as may be seen."""
    found: set[tuple[int, int]] = set()
    for pid in pids:
        found |= _mapped(_PROC / str(pid), folder) | _open(_PROC / str(pid), folder)
    return found


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
