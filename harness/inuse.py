"""Says that a stack's environment is in use, so that no install changes it below a run or a stack that was left up.

A shared lock on a file. The harness holds it, and every service of the stack inherits it: it lasts as long as the last
of them, however they end. Children that vLLM spawns do not have it; they are the engine's to end. The build plane has
to have the file alone before it changes the environment.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from harness.clock import Clock, Deadline
from harness.errors import InstallError
from harness.rundir import cannot_write

_POLL_S = 0.1


def in_use_file(project_root: Path, stack: str) -> Path:
    """The file to lock; the build plane (`scripts.layout`) has the same path."""
    return project_root / ".cache" / "locks" / f"{stack}.in-use"


class InUse:
    """One run's share of the lock; free until `take`. A context manager that lets go at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def fds(self) -> tuple[int, ...]:
        """What a process has to inherit to hold the lock as well; empty while it is not taken."""
        return () if self._handle is None else (self._handle,)

    def take(self, deadline: Deadline, clock: Clock, say: Callable[[str], None]) -> None:
        """Take it, waiting for an install that is at work. Raises `InstallError` at the deadline, `Interrupted`."""
        if self._handle is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            self._await(handle, deadline, clock, say)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle

    def _await(self, handle: int, deadline: Deadline, clock: Clock, say: Callable[[str], None]) -> None:
        if _locked(handle):
            return
        say("waiting for an install that is changing this stack's environment")
        while not _locked(handle):
            if deadline.passed(clock):
                raise InstallError(
                    "the environment is still being changed by another install",
                    expected=f"that install ends within {deadline.granted_s:g} s",
                    found=f"it holds {self.path}",
                    where=str(self.path),
                )
            clock.sleep(min(_POLL_S, deadline.remaining(clock)))

    def release(self) -> None:
        """Let go of this process's share; the stack's processes keep theirs."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> InUse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
