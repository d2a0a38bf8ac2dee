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

PATIENCE_S, POLL_S = 2.0, 0.05
"""The kernel takes an autogroup's value from one who is not root about once in 0.1 s, whoever asked before."""


def lower(pid: int, nice: int, clock: Clock) -> None:
    """Give `pid`, the leader of a new session, and what it will start, the value `nice` (see nice(2)).

    Where the kernel shares out the cores by session (autogroup, see sched(7)), that value counts within the session
    only, and the session has one of its own. A process that has ended already is left to whoever looks after it.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    except ProcessLookupError:
        return
    deadline = Deadline.after(clock, PATIENCE_S)
    while not _set_autogroup(Path(f"/proc/{pid}/autogroup"), nice) and not deadline.passed(clock):
        clock.sleep(POLL_S)


def _set_autogroup(file: Path, nice: int) -> bool:
    """False when it is worth asking again. A kernel without autogroups has no such file."""
    try:
        with file.open("r+") as autogroup:
            autogroup.write(str(nice))
    except OSError as refused:
        return refused.errno != errno.EAGAIN
    return True
