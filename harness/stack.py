"""The running stack: its services are started (see `startup`), watched (see `watch`), and end in reverse.

One real generation, which completes being ready, is the caller's (see `observer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from harness.clock import Clock, Deadline
from harness.described import described
from harness.discovery import complete_topology, require_same
from harness.ending import Stopped, never
from harness.errors import SmokestackError
from harness.events import BaseEvent, Failure, Listening, Note, Processes, ServiceReady, ServiceStarted
from harness.exposure import Exposure
from harness.leases import Leases
from harness.plain import PlainStartup
from harness.priority import lower
from harness.process import Process
from harness.proctable import ProcessTable
from harness.services import frontend
from harness.services.context import ETCD_PORT, TRAINER, ServiceContext, engine_name
from harness.services.spec import ServiceSpec
from harness.shm import SharedMemory
from harness.standing import Owner, StandingStack
from harness.startup import Startup, discovery_probe
from harness.teardown import Leftovers, StopError, look_around, stop_in_phases
from harness.topology import Topology
from harness.vigil import AFTERMATH_S, Vigil
from harness.vitals import TICKS_PER_S, roll_call
from harness.watch import Watch

NOTE_INTERVAL_S = 1.0


def no_more() -> None:
    """What a wait does meanwhile when there is nothing else to do."""


class Stack:
    """The services of one run. `emit` records each event; `clock` ends every wait when the run is interrupted.

    `meanwhile` is called in every round of a wait, for the work that would otherwise lie until the stack is ready.
    `inherited` are open files that every service of the stack gets, beside its own.
    """

    def __init__(
        self,
        context: ServiceContext,
        *,
        clock: Clock,
        emit: Callable[[BaseEvent], None],
        meanwhile: Callable[[], None] = no_more,
        inherited: tuple[int, ...] = (),
    ) -> None:
        self.context = context
        self._clock = clock
        self._emit = emit
        self._meanwhile = meanwhile
        self._inherited = inherited
        self._watch = Watch(clock, emit)
        self._shared_memory = SharedMemory()
        self._exposure = Exposure()
        self.leases = Leases(context.url(ETCD_PORT))
        self._noted_at = clock.monotonic()
        self._topology: Topology | None = None

    @property
    def topology(self) -> Topology:
        """The pinned topology; raises RuntimeError before the stack is ready."""
        if self._topology is None:
            raise RuntimeError("the stack is not ready")
        return self._topology

    @property
    def processes(self) -> dict[str, Process]:
        """Everything launched so far by service name, in the order of its start."""
        return dict(self._watch.processes)

    @property
    def vigil(self) -> Vigil:
        """Waits for other things than readiness, with an eye on the stack."""
        return Vigil(self._clock, self.watch)

    def start(self) -> Topology:
        """Bring the whole stack up; `stop` has to follow in any case.

        Raises NotReadyError, ServiceDiedError or DiscoveryError.
        """
        engines = [engine_name(index) for index in range(self.context.config.engines)]
        for name in engines:
            self._watch.attend(name)
        make = Startup if self.context.config.serving == "dynamo" else PlainStartup
        startup = make(self.context, clock=self._clock, launch=self.launch, watch=self.watch, emit=self._emit_start)
        with self.leases.naming_loss():
            self._topology = startup.run()
        self.leases.note()
        for name in engines:
            self._watch.guard(name)
        self._note_shared_memory()
        return self._topology

    def _emit_start(self, event: BaseEvent) -> None:
        """A service that has become ready has its lease, which it may lose before the others are."""
        self._emit(event)
        if isinstance(event, ServiceReady):
            self.leases.note()

    def launch(self, spec: ServiceSpec) -> Process:
        """Start one more service (the trainer); it is watched and stopped with the others."""
        spec = replace(spec, pass_fds=(*spec.pass_fds, *self._inherited))
        process = Process(spec, run_id=self.context.config.run_id)
        self._watch.add(process)
        process.start()
        hindered = lower(process.pid, spec.nice, self._clock) if spec.nice else None
        self._emit(
            ServiceStarted(
                service=spec.name,
                pid=process.pid,
                start_time=process.start_time / TICKS_PER_S,
                log=str(spec.log),
                nice=0 if hindered else spec.nice,
            )
        )
        if hindered:
            self._emit(Note(text=f"{spec.name} was to run at a lower priority: {hindered}"))
        return process

    def may_end(self, name: str, *, with_any_status: bool = False) -> None:
        """See `Watch.may_end`."""
        self._watch.may_end(name, with_any_status=with_any_status)

    def watch(self) -> None:
        """Raise ServiceDiedError if a service has ended, or an engine's inner process has ended or stands still."""
        try:
            self._meanwhile()
        except SmokestackError:
            # Who fails may only have met the end of another process, which says more, and shows a moment later.
            Vigil(self._clock, self._watch.look).until(lambda: False, AFTERMATH_S)
            raise
        self._watch.look()
        if self._clock.monotonic() - self._noted_at >= NOTE_INTERVAL_S:
            self._note_shared_memory()
            self.note_listening()

    def current_topology(self) -> Topology:
        """Ask discovery anew, until it gives a complete answer, whatever that is. Raises DiscoveryError without one.

        Engines alone are in no discovery: theirs cannot change.
        """
        if self.context.config.serving != "dynamo":
            return self.topology
        probe = discovery_probe(self.context)
        deadline = Deadline.after(self._clock, self.context.config.deadlines.request_s)
        return complete_topology(probe, deadline=deadline, clock=self._clock, alive=self.watch)

    def require_same_topology(self) -> None:
        """Ask discovery anew; raises DiscoveryError unless it still gives the pinned topology."""
        require_same(self.topology, self.current_topology(), frontend.discovery_url(self.context))

    def identities(self, when: Literal["start", "end"]) -> Processes:
        """What runs and what is discovered now, both looked up anew: nothing in it is remembered from the start."""
        return roll_call(
            {name: process for name, process in self._watch.processes.items() if name != TRAINER},
            when=when,
            fingerprint=self.current_topology().fingerprint,
            with_children={engine_name(index) for index in range(self.context.config.engines)},
        )

    def listening(self, when: Literal["start", "end"]) -> Listening:
        """On what the processes of this run listen now; at the end with all that was seen while it was watched."""
        return self._exposure.listing(when, self._pids(marks=True))

    def note_listening(self) -> None:
        """Remember on what they listen now, for the list at the end."""
        self._exposure.look(self._pids())

    def _pids(self, *, marks: bool = False) -> dict[str, list[int]]:
        """Every living process of each service; see `ProcessTree.update`."""
        table = ProcessTable.read()
        return {
            name: [row.pid for row in process.tree.update(table, marks=marks)]
            for name, process in self._watch.processes.items()
            if process.started
        }

    def stop(self, *, urgent: Callable[[], bool] = never) -> Leftovers:
        """End everything that was launched, in reverse order; fine after a partial start, and a second time.

        `urgent` becomes true when somebody will not wait any longer: the graces end there.
        """
        began = self._clock.monotonic()
        processes, failed = self._watch.processes, None
        self._note_shared_memory(anew=True)
        try:
            ended = stop_in_phases({name: partial(one.stop, urgent=urgent) for name, one in processes.items()})
        except StopError as error:
            # A failure of the run, and no reason not to look at what is left of it.
            ended, failed = error.ended, error
        left = look_around(
            self.context.config.run_id,
            [process.tree for process in processes.values() if process.started],
            self.context.config.ports.values(),
            seconds=self._clock.monotonic() - began,
        )
        left = replace(left, files=self._shared_memory.remove_own())
        self._tell_end(ended, failed, left)
        return left

    def _note_shared_memory(self, *, anew: bool = False) -> None:
        """Of every process that was seen so far, or is there now (`anew`). No reason for a run or its end to fail."""
        self._noted_at = self._clock.monotonic()
        started = [process for process in self._watch.processes.values() if process.started]
        try:
            for process in started if anew else ():
                process.snapshot()
            self._shared_memory.note(one.pid for process in started for one in process.tree.recorded)
        except OSError as error:
            self._emit(Note(text=f"shared memory could not be looked at: {error}"))

    def _tell_end(self, ended: list[Stopped], failed: StopError | None, left: Leftovers) -> None:
        """Only after all is done and found: telling may fail, too."""
        for stopped in ended:
            if self._watch.processes[stopped.service].started:
                self._watch.tell_exit(stopped.service, stopped.returncode, expected=True)
        for stranger in left.strangers:
            self._emit(Note(text=f"not of this run, though on a port of it: {stranger}"))
        for path in self._shared_memory.abandoned():
            self._emit(Note(text=f"new since the start and used by nobody, perhaps of another run: {path}"))
        if failed is not None:
            self._emit(Failure.of(failed))

    def describe(self, owner: Owner | None = None) -> StandingStack:
        """Addresses, processes and logs of what runs now; written to the run folder, `down` can take it down later.

        `owner` is the command that will take it down itself, if one will.
        """
        return described(self.context, self._watch.processes.values(), owner)
