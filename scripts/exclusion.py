"""Who may change a stack: one writer at a time, and no one while a run uses the environment.

Both are file locks, which end with their holders, however these end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from scripts.console import Console
from scripts.errors import BuildError, InstallError

WAIT_LIMIT_S = 7200.0
"""As long as the other one may download on a slow line, and no longer: it may also be stopped."""

_POLL_S = 0.1
_COMMAND_CHARACTERS = 120


@contextlib.contextmanager
def exclusive(
    mutex: Path, console: Console, limit_s: float = WAIT_LIMIT_S, what: str = "build or install of this stack"
) -> Iterator[None]:
    """Hold `mutex` for the block; say so once when another process has it, and wait for it.

    Raises `BuildError` when the other process still has it after `limit_s`.
    """
    mutex.parent.mkdir(parents=True, exist_ok=True)
    with mutex.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            console.say(f"  waiting for another {what} (pid {handle.read().strip() or '?'})")
            _wait_for(handle, mutex, limit_s, what)
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def _wait_for(handle: IO[str], mutex: Path, limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            if time.monotonic() > deadline:
                raise BuildError(
                    f"another {what} does not end",
                    expected=f"its end within {limit_s:g} s",
                    found="\n    ".join(holders(mutex)) or "processes of another user",
                    where=str(mutex),
                    hint="look at that process; when it is stopped or hangs, end it",
                ) from held
        time.sleep(_POLL_S)


@contextlib.contextmanager
def unused(in_use: Path, environment: Path) -> Iterator[None]:
    """Keep runs out of `environment` for the block. Raises `InstallError` that names them while there are any.

    Every run holds a shared lock on `in_use` for as long as it or a process of its stack lives (`harness.inuse`), so
    that a stack never has its files changed below it. Not waited for: a stack that was left up may stay for days.
    """
    in_use.parent.mkdir(parents=True, exist_ok=True)
    with in_use.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise InstallError(
                f"{environment.name} has to be changed, and a run is using it",
                expected="no process of a run or of a stack that is up",
                found="\n    ".join(holders(in_use)) or "processes of another user",
                where=str(environment),
                hint="./noxw -s down   # for a stack that is up (see ./noxw -s status); or wait for the run to end",
            ) from held
        yield


def holders(path: Path) -> list[str]:
    """The other processes that have `path` open, as far as this user may see: pid and command line, one string each.

    The kernel's own list (`/proc/locks`) names who took a lock, who may have ended and left it to its children.
    """
    wanted = path.stat()
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [f"pid {pid}: {_command(pid)}" for pid in pids if pid != os.getpid() and _has_open(pid, wanted)]


def working_in(folder: Path, variable: str) -> dict[int, str]:
    """Other processes that were started with `variable` (NAME=VALUE) and work in `folder`: pid -> command line.

    Both, as a person may look around in a folder, and a compiler cache's server keeps the variables of its first call.
    """
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return {pid: _command(pid) for pid in pids if pid != os.getpid() and _works_in(pid, folder, variable)}


def _works_in(pid: int, folder: Path, variable: str) -> bool:
    try:
        # Of a folder that is gone the kernel says so behind its name.
        place = Path(str(Path(f"/proc/{pid}/cwd").readlink()).removesuffix(" (deleted)"))
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return place.is_relative_to(folder) and os.fsencode(variable) in variables


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    # Processes and their files come and go while one looks, and those of other users may not be looked at.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(entry.stat(), wanted):
                    return True
    return False


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "(ended)"
    line = shlex.join(word for word in words if word)
    return line if len(line) <= _COMMAND_CHARACTERS else line[: _COMMAND_CHARACTERS - 1] + "…"
