"""Asked to end: SIGINT, SIGTERM and SIGHUP become events, and the end of the parent becomes a SIGTERM.

The handlers only set events; the clock's sleep raises `Interrupted`, so that the run ends at a place of its choosing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

from harness.flag import Flag

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DIE_WITH_PARENT = "SMOKESTACK_DIE_WITH_PARENT"
SAME_REQUEST_S = 0.25

_PR_SET_PDEATHSIG = 1


class InterruptSignals:
    """A context in which the first signal sets `interrupt` and a later one also sets `urgent`.

    `interrupt` belongs into the run's clock; `urgent.is_set` hurries the teardown. Signals within `SAME_REQUEST_S` of
    the first are the same request: Ctrl-C reaches the whole foreground group, and a parent may pass it on as well.
    A signal that was ignored on entry (nohup) stays ignored. A context within another takes over what that one was
    told, so that nothing is lost on the way from the start of the program to its run. Enter it in the main thread.
    """

    def __init__(self, interrupt: Flag | None = None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.interrupt = interrupt or Flag()
        self.urgent = Flag()
        self.received: list[str] = []
        self._monotonic = monotonic
        self._first_at: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> InterruptSignals:
        self.install()
        return self

    def install(self) -> None:
        """For the rest of the program, without an end."""
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._handle)
        # Only now, so that no signal falls between the two.
        for outer in {getattr(handler, "__self__", None) for handler in self._before.values()}:
            if isinstance(outer, InterruptSignals) and outer.received:
                self._take_over(outer)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _take_over(self, outer: InterruptSignals) -> None:
        self.received += outer.received
        self._first_at = outer._first_at
        self.interrupt.set()
        if outer.urgent.is_set():
            self.urgent.set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = self._monotonic()
        self.received.append(signal.Signals(number).name)
        if self._first_at is None:
            self._first_at = now
        elif now - self._first_at > SAME_REQUEST_S:
            self.urgent.set()
        self.interrupt.set()


def die_with_parent(environ: Mapping[str, str]) -> bool:
    """Where the caller asks for it, have the kernel send this process SIGTERM when its parent ends.

    `SMOKESTACK_DIE_WITH_PARENT` is the parent's pid, or 1 for whoever is the parent now. Sends the SIGTERM itself when
    the parent has ended already. Returns whether it was asked for. To be called within `InterruptSignals`.
    """
    import ctypes  # costs more than all else that has to be imported before signals are heard

    wanted = environ.get(DIE_WITH_PARENT, "")
    if not wanted.isdecimal() or int(wanted) == 0:
        return False
    parent = os.getppid() if int(wanted) == 1 else int(wanted)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        signal.raise_signal(signal.SIGTERM)
    return True
