"""Ends the processes of one service: asked once with SIGTERM, and after the grace all of them with SIGKILL.

Whatever ends a process of a run ends it here. Every signal goes to a process known by pid and start time.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.clock import Clock, Deadline, SteadyClock
from harness.errors import Interrupted
from harness.proctable import ProcessId, ProcessRow, ProcessTable, read_row
from harness.survivors import ProcessTree

POLL_S = 0.03
KILL_LIMIT_S = 5.0
_STEADY = SteadyClock()


def never() -> bool:
    """The `urgent` of a stop that nothing hurries."""
    return False


@dataclass(frozen=True)
class Stopped:
    """How a service ended. `returncode` is the leader's, negative for a signal, None when it is not our child.

    `killed` needed SIGKILL; `left` are still there after it (only the kernel can hold them).
    """

    service: str
    seconds: float
    returncode: int | None
    killed: tuple[ProcessId, ...] = ()
    left: tuple[ProcessId, ...] = ()


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process. False when it has ended or this user may not signal it."""
    handle: int | None = None
    try:
        handle = _open_handle(process.pid)
        # Only now: the handle, not the pid, is what cannot pass to another process between this look and the signal.
        row = read_row(process.pid)
        if row is None or row.id != process or row.ended:
            return False
        if handle is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    else:
        return True
    finally:
        if handle is not None:
            os.close(handle)


def _open_handle(pid: int) -> int | None:
    """A pidfd, or None on a kernel before 5.3."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return None
        raise


@dataclass
class Ending:
    """The way of one process tree to its end. No process gets SIGTERM twice: some programs take a second one for
    permission to drop everything."""

    tree: ProcessTree
    _asked: set[ProcessId] = field(default_factory=set)
    _killed: set[ProcessId] = field(default_factory=set)

    def ask(self) -> list[ProcessRow]:
        """SIGTERM to the leader, which knows how to end its children; to each of them once the leader has gone.

        Returns those that have not ended yet.
        """
        table = ProcessTable.read()
        # Whoever only bears the mark is asked last, when nobody is left who could be ending it.
        rows = self.tree.update(table) or self.tree.update(table, marks=True)
        leader = [row for row in rows if row.id == self.tree.leader]
        for row in leader or rows:
            if row.id not in self._asked:
                self._asked.add(row.id)
                send(row.id, signal.SIGTERM)
        for row in rows:
            # A stopped process would keep the signal for later, and its parent might wait for it.
            if row.stopped:
                send(row.id, signal.SIGCONT)
        return rows

    def wait(self, deadline: Deadline, clock: Clock, urgent: Callable[[], bool] = never) -> bool:
        """Ask, and wait until every process of the tree has ended. False at the deadline or when it became urgent.

        An interrupted clock counts as urgent.
        """
        while not urgent():
            if not self.ask():
                return True
            if deadline.passed(clock):
                return False
            try:
                clock.sleep(min(POLL_S, deadline.remaining(clock)))
            except Interrupted:
                return False
        return False

    def kill(self, limit_s: float = KILL_LIMIT_S) -> tuple[ProcessId, ...]:
        """SIGKILL to every process of the tree until none is left. Returns those left after `limit_s` seconds.

        Never cut short: what an interrupt would save here, the machine would pay for.
        """
        deadline = Deadline.after(_STEADY, limit_s)
        while rows := self.tree.update(ProcessTable.read(), marks=True):
            for row in rows:
                if send(row.id, signal.SIGKILL):
                    self._killed.add(row.id)
            if deadline.passed(_STEADY):
                return tuple(row.id for row in rows)
            _STEADY.sleep(POLL_S / 3)
        return ()

    def end(
        self, grace_s: float, clock: Clock, urgent: Callable[[], bool], returncode: Callable[[], int | None]
    ) -> Stopped:
        """The whole way: ask, wait for `grace_s` seconds at most, kill the rest."""
        began = _STEADY.monotonic()
        self.wait(Deadline.after(clock, grace_s), clock, urgent)
        left = self.kill()
        seconds = _STEADY.monotonic() - began
        return Stopped(self.tree.service, seconds, returncode(), tuple(sorted(self._killed)), left)
