"""A process's share of the cores: lower than that of whatever waits for its answers.

A small engine can keep all of a small machine's cores busy. vLLM's processes spin with `sched_yield` while they wait
for each other, and beside two of them on two cores (Linux 6.18) a process that slept for 2 ms was seen to wake up
0.65 s later; with the engine at nice 10, after at most 0.02 s.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from harness.clock import Clock, Deadline

LEAST = 19
PATIENCE_S, POLL_S = 2.0, 0.05
"""The kernel takes an autogroup's value from one who is not root about once in 0.1 s, whoever asked before."""


def lower(pid: int, by: int, clock: Clock) -> str | None:
    """Make `pid`, the leader of a new session, and what it will start, nicer than this process by `by` (see nice(2)).

    Where the kernel shares out the cores by session (autogroup, see sched(7)), that value counts within the session
    only, and the session has one of its own: it becomes nicer than the session of this process or, where this process
    is in none (no process above it has ever called setsid(2)), than this process itself. Returns what hindered it, if
    anything did. A process that has ended already is left to whoever looks after it.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, pid, min(nice + by, LEAST))
        if autogroup_of(pid) is not None:
            own = autogroup_of(os.getpid())
            _set_autogroup(_file(pid), min((nice if own is None else own) + by, LEAST), clock)
    except (ProcessLookupError, FileNotFoundError):
        return None
    except OSError as refused:
        return f"{refused.strerror}: pid {pid} keeps its share of the cores"
    return None


def autogroup_of(pid: int) -> int | None:
    """The value of a process's session; None where it is in none, has ended, or the kernel has none. Raises OSError."""
    try:
        told = _file(pid).read_text()
    except FileNotFoundError:
        return None
    return int(told.rpartition("nice ")[2]) if told else None


def _file(pid: int) -> Path:
    return Path(f"/proc/{pid}/autogroup")


def _set_autogroup(file: Path, nice: int, clock: Clock) -> None:
    """Ask until the kernel takes it. Raises OSError for another refusal, and when patience is at its end."""
    deadline = Deadline.after(clock, PATIENCE_S)
    while True:
        try:
            file.write_text(str(nice))
            return
        except OSError as refused:
            if refused.errno != errno.EAGAIN or deadline.passed(clock):
                raise
            clock.sleep(POLL_S)
