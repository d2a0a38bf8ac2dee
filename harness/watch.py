"""Looks after the processes of one run: whether each still runs, what each engine cannot live without, who has ended.

One reading of the process table serves all services: this happens five times a second, beside an engine that computes
on the same cores.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.clock import Clock, Deadline
from harness.errors import ServiceDiedError
from harness.events import BaseEvent, ServiceExited
from harness.process import Process
from harness.proctable import ProcessTable, read_row
from harness.services.context import TRAINER
from harness.successor import naming_successor
from harness.vitals import Vitals, require_none_stopped

LAST_WORDS_S = 1.0


class Watch:
    """The processes under watch, by service name in the order of their start. `emit` records every end once."""

    def __init__(self, clock: Clock, emit: Callable[[BaseEvent], None]) -> None:
        self.processes: dict[str, Process] = {}
        self._clock = clock
        self._emit = emit
        self._vitals: dict[str, Vitals] = {}
        self._attended: set[str] = set()
        self._may_end: set[str] = set()
        self._free_to_end: set[str] = set()
        self._exits_told: set[str] = set()
        self._seen_ended: dict[str, float] = {}

    def add(self, process: Process) -> None:
        """Before its start, so that it is stopped even when that fails half-way."""
        self.processes[process.spec.name] = process

    def attend(self, name: str) -> None:
        """None of this service's processes may be stopped from its start on: it would be waited for in vain."""
        self._attended.add(name)

    def guard(self, name: str) -> None:
        """From now on every process that this service has at this moment has to go on running."""
        self._vitals[name] = Vitals.of(self.processes[name])

    def may_end(self, name: str, *, with_any_status: bool = False) -> None:
        """From now on the end of this service with status 0 is no fault (the trainer, once it is done).

        `with_any_status`: nor with another; whoever waits for that end judges it.
        """
        (self._free_to_end if with_any_status else self._may_end).add(name)

    def look(self) -> None:
        """Raise ServiceDiedError if a service has ended, or a guarded inner process has ended or stands still."""
        table = ProcessTable.read()
        for name, process in self.processes.items():
            returncode = process.poll()
            if returncode is None:
                if process.started:
                    living = process.tree.update(table)
                    if name in self._attended:
                        require_none_stopped(process, living)
                continue
            if name in self._free_to_end or (name in self._may_end and returncode == 0):
                self.tell_exit(name, returncode, expected=True)
            elif self._has_had_its_say(name):
                self._raise_if_ended(name)
        for name, vitals in self._vitals.items():
            try:
                vitals.check()
            except ServiceDiedError:
                # The leader may be ending; its exit status then says more, once its last thread has gone.
                if _is_ending(self.processes[name]):
                    self.processes[name].wait(Deadline.after(self._clock, LAST_WORDS_S), self._clock)
                self._raise_if_ended(name)
                raise

    def tell_exit(self, name: str, returncode: int | None, *, expected: bool) -> None:
        """Record the end of a service; only the first time counts."""
        if name in self._exits_told:
            return
        self._exits_told.add(name)
        self._emit(ServiceExited(service=name, returncode=returncode, expected=expected))

    def _raise_if_ended(self, name: str) -> None:
        returncode = self.processes[name].poll()
        if returncode is not None:
            self.tell_exit(name, returncode, expected=False)
            with naming_successor(self.processes[name]):
                self.processes[name].check_alive()

    def _has_had_its_say(self, name: str) -> bool:
        """Whether an end may be reported. The trainer's last event says more than its exit status: let it be read."""
        if name != TRAINER:
            return True
        seen = self._seen_ended.setdefault(name, self._clock.monotonic())
        return self._clock.monotonic() - seen >= LAST_WORDS_S


def _is_ending(process: Process) -> bool:
    """Whether the kernel has begun to take the leader apart: its status may not be there to be asked for yet."""
    row = read_row(process.pid)
    return row is None or row.ended
