"""Several runs at a time, each in a process of its own: signals and a run's clock belong to the main thread of one.

Whatever asks this process to end is passed on, and every run is waited for: each takes its own stack down. So it is
when whoever takes the answers gives up (`close` of the generator).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from harness.signals import DIE_WITH_PARENT, InterruptSignals

Item = TypeVar("Item")
Told = TypeVar("Told")

LOOK_S = 0.1


class Lost(Exception):  # noqa: N818 - an answer like the others
    """A process that ended without telling what became of its run; the text has its exit status."""


def side_by_side(
    items: Sequence[Item], run: Callable[[Item], Told], at_a_time: int
) -> Generator[tuple[Item, Told | Lost], None, None]:
    """`run` of each item, begun in their order; yields what it returned as each ends. Begins no more once interrupted.

    Nothing is said then of a process that ends without an account: it was asked to end. What `run` returns has to be
    picklable, and it must not raise. To be closed: that ends what is still under way.
    """
    pending, under_way = list(items), _UnderWay[Item, Told]()
    with InterruptSignals() as signals:
        try:
            while pending or under_way.ends:
                while pending and len(under_way.ends) < at_a_time and not signals.interrupt.is_set():
                    under_way.begin(pending.pop(0), run)
                if not under_way.ends:
                    return
                for item, told in under_way.ended(LOOK_S):
                    if not (isinstance(told, Lost) and signals.interrupt.is_set()):
                        yield item, told
                under_way.pass_on(signals)
        finally:
            under_way.take_down(signals)


class _UnderWay(Generic[Item, Told]):
    """The processes at work, by the end of the pipe on which each tells."""

    def __init__(self) -> None:
        self.ends: dict[Connection, tuple[Item, BaseProcess]] = {}
        self._asked = 0

    def begin(self, item: Item, run: Callable[[Item], Told]) -> None:
        context = get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_tell, args=(theirs, run, item))
        process.start()
        theirs.close()
        self.ends[ours] = (item, process)

    def ended(self, seconds: float) -> Iterator[tuple[Item, Told | Lost]]:
        for end in wait(list(self.ends), timeout=seconds):
            assert isinstance(end, Connection)
            item, process = self.ends.pop(end)
            try:
                told: Told | Lost = end.recv()
            except EOFError:
                process.join()
                told = Lost(f"exit status {process.exitcode}")
            end.close()
            process.join()
            process.close()
            yield item, told

    def pass_on(self, signals: InterruptSignals) -> None:
        """The first request, and the urgent one, each once."""
        self._ask(signals.interrupt.is_set() + signals.urgent.is_set())

    def take_down(self, signals: InterruptSignals) -> None:
        """Ask all that are left to end, and wait for each; nobody wants their answers."""
        if self.ends:
            self._ask(1)
        while self.ends:
            for _ in self.ended(LOOK_S):
                pass
            self.pass_on(signals)

    def _ask(self, times: int) -> None:
        """To end, for the first or for the second time; nothing when that was asked before."""
        if times > self._asked:
            self._asked = times
            for _, process in self.ends.values():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGTERM)


def _tell(end: Connection, run: Callable[[Item], Told], item: Item) -> None:
    # In a group of its own, so that Ctrl-C comes once, from here, and not twice.
    os.setpgrp()
    os.environ[DIE_WITH_PARENT] = str(os.getppid())
    end.send(run(item))
    end.close()
