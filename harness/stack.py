"""The running stack: services start in order, with as much side by side as is safe, are watched, and end in reverse.

etcd and the engines start at once; the frontend when etcd answers; a sidecar when its engine does. Ready means: each
service's own probes, two equal discovery answers with the configured ranks on our own engines, and the model published
by the frontend. One real generation, which completes it, is the caller's (see `observer`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from harness.clock import Clock, Deadline
from harness.discovery import DiscoveryProbe, require_same
from harness.ending import never
from harness.errors import DiscoveryError, ServiceDiedError
from harness.events import (
    BaseEvent,
    Processes,
    ProcessRecord,
    ServiceExited,
    ServiceReady,
    ServiceStarted,
)
from harness.poller import Wait, wait_all, wait_for
from harness.ports import Listener, intruder
from harness.probes import HttpProbe
from harness.process import Process
from harness.services import engine, etcd, frontend, sidecar
from harness.services.context import ETCD, FRONTEND, FRONTEND_PORT, TRAINER, ServiceContext, engine_name, sidecar_name
from harness.services.spec import ServiceSpec
from harness.standing import StandingService, StandingStack
from harness.teardown import Leftovers, look_around, stop_in_phases
from harness.topology import Expectation, Topology, topology_event
from harness.vitals import TICKS_PER_S, Vitals

SNAPSHOT_INTERVAL_S = 0.1
LAST_WORDS_S = 1.0


def no_more() -> None:
    """What a wait does meanwhile when there is nothing else to do."""


class Stack:
    """The services of one run. `emit` records each event; `clock` ends every wait when the run is interrupted.

    `meanwhile` is called in every round of a wait, for the work that would otherwise lie until the stack is ready.
    """

    def __init__(
        self,
        context: ServiceContext,
        *,
        clock: Clock,
        emit: Callable[[BaseEvent], None],
        meanwhile: Callable[[], None] = no_more,
    ) -> None:
        self.context = context
        self._clock = clock
        self._emit = emit
        self._meanwhile = meanwhile
        self._processes: dict[str, Process] = {}
        self._began: dict[str, float] = {}
        self._vitals: dict[str, Vitals] = {}
        self._may_end: set[str] = set()
        self._exits_told: set[str] = set()
        self._seen_ended: dict[str, float] = {}
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
        return dict(self._processes)

    def start(self) -> Topology:
        """Bring the whole stack up; `stop` has to follow in any case.

        Raises NotReadyError, ServiceDiedError or DiscoveryError.
        """
        try:
            self._start_services()
        except ServiceDiedError as died:
            intruding = self._port_taken()
            if intruding is None:
                raise
            raise _port_was_taken(died, *intruding) from died
        self._topology = self._discover()
        for index in range(self.context.config.engines):
            name = engine_name(index)
            self._vitals[name] = Vitals.of(self._processes[name])
        self._emit(topology_event(self._topology, self._expectation))
        return self._topology

    def launch(self, spec: ServiceSpec) -> Process:
        """Start one more service (the trainer); it is watched and stopped with the others."""
        process = Process(spec, run_id=self.context.config.run_id)
        self._processes[spec.name] = process
        self._began[spec.name] = self._clock.monotonic()
        process.start()
        started_s = process.start_time / TICKS_PER_S
        self._emit(ServiceStarted(service=spec.name, pid=process.pid, start_time=started_s, log=str(spec.log)))
        return process

    def may_end(self, name: str) -> None:
        """From now on the end of this service with status 0 is no fault (the trainer, once it is done)."""
        self._may_end.add(name)

    def watch(self) -> None:
        """Raise ServiceDiedError if a service has ended, or an engine's inner process has ended or stands still."""
        self._meanwhile()
        for name, process in self._processes.items():
            returncode = process.poll()
            if returncode is None:
                process.snapshot()
                continue
            if name in self._may_end and returncode == 0:
                self._tell_exit(name, returncode, expected=True)
            elif self._has_had_its_say(name):
                self._raise_if_ended(name)
        for name, vitals in self._vitals.items():
            try:
                vitals.check()
            except ServiceDiedError:
                # The leader may have ended since it was asked; its exit status then says more.
                self._raise_if_ended(name)
                raise

    def _raise_if_ended(self, name: str) -> None:
        returncode = self._processes[name].poll()
        if returncode is not None:
            self._tell_exit(name, returncode, expected=False)
            self._processes[name].check_alive()

    def _has_had_its_say(self, name: str) -> bool:
        """Whether an end may be reported. The trainer's last event says more than its exit status: let it be read."""
        if name != TRAINER:
            return True
        seen = self._seen_ended.setdefault(name, self._clock.monotonic())
        return self._clock.monotonic() - seen >= LAST_WORDS_S

    def require_same_topology(self) -> None:
        """Ask discovery again; raises DiscoveryError unless it still gives the pinned topology."""
        probe = self._discovery_probe()
        require_same(self.topology, probe.ask, probe.url)

    def identities(self, when: Literal["start", "end"]) -> Processes:
        """Which of the stack's own processes live now: each leader, and what an engine cannot live without."""
        records: list[ProcessRecord] = []
        for name, process in self._processes.items():
            if name not in self._stack_services():
                continue
            vitals = self._vitals.get(name) or Vitals.of_leader(process)
            records += [
                ProcessRecord(service=name, pid=one.pid, start_time=one.start_time / TICKS_PER_S)
                for one in vitals.living()
            ]
        return Processes(when=when, fingerprint=self.topology.fingerprint, processes=tuple(records))

    def stop(self, *, urgent: Callable[[], bool] = never) -> Leftovers:
        """End everything that was launched, in reverse order; fine after a partial start, and a second time.

        `urgent` becomes true when somebody will not wait any longer: the graces end there.
        """
        began = self._clock.monotonic()
        stops = {name: partial(process.stop, urgent=urgent) for name, process in self._processes.items()}
        for stopped in stop_in_phases(stops):
            if self._processes[stopped.service].started:
                self._tell_exit(stopped.service, stopped.returncode, expected=True)
        return look_around(
            self.context.config.run_id,
            [process.tree for process in self._processes.values() if process.started],
            [port for process in self._processes.values() for port in process.spec.ports.values()],
            seconds=self._clock.monotonic() - began,
        )

    def describe(self) -> StandingStack:
        """Addresses, processes and logs of what runs now; written to the run folder, `down` can take it down later."""
        context, config = self.context, self.context.config
        return StandingStack(
            run_id=config.run_id,
            stack=config.stack,
            model=config.served_model_name,
            run_dir=config.run_dir,
            tmp_dir=config.tmp_dir,
            urls={
                "frontend": context.url(FRONTEND_PORT),
                "discovery": frontend.discovery_url(context),
                **{engine_name(i): context.url(engine_name(i)) for i in range(config.engines)},
                **{sidecar_name(i): context.url(sidecar_name(i)) for i in range(config.engines)},
            },
            services=tuple(_standing(process) for process in self._processes.values() if process.alive()),
        )

    @property
    def _expectation(self) -> Expectation:
        config = self.context.config
        return Expectation(config.served_model_name, config.engines * config.tensor_parallel)

    def _stack_services(self) -> set[str]:
        indices = range(self.context.config.engines)
        return {ETCD, FRONTEND} | {engine_name(i) for i in indices} | {sidecar_name(i) for i in indices}

    def _start_services(self) -> None:
        deadlines, indices = self.context.config.deadlines, range(self.context.config.engines)
        etcd_wait = self._launch_and_wait(etcd.spec(self.context), deadlines.etcd_s)
        engine_waits = [self._launch_and_wait(engine.spec(self.context, i), deadlines.engine_s) for i in indices]
        self._wait([etcd_wait])
        frontend_wait = self._launch_and_wait(frontend.spec(self.context), deadlines.frontend_s)
        sidecars = {engine_name(i): sidecar.spec(self.context, i) for i in indices}
        sidecar_waits: list[Wait] = []

        def follow(name: str) -> None:
            if name in sidecars:
                sidecar_waits.append(self._launch_and_wait(sidecars[name], deadlines.sidecar_s))

        self._wait([frontend_wait, *engine_waits], follow)
        self._wait(sidecar_waits)

    def _launch_and_wait(self, spec: ServiceSpec, seconds: float) -> Wait:
        self.launch(spec)
        return Wait(spec.name, spec.probes, Deadline.after(self._clock, seconds), log=spec.log)

    def _wait(self, waits: list[Wait], follow: Callable[[str], None] | None = None) -> None:
        def on_ready(name: str, _since_wait: float) -> None:
            self._emit(ServiceReady(service=name, seconds=self._clock.monotonic() - self._began[name]))
            if follow is not None:
                follow(name)

        wait_all(waits, clock=self._clock, alive=self.watch, on_ready=on_ready)

    def _discovery_probe(self) -> DiscoveryProbe:
        return DiscoveryProbe(frontend.discovery_url(self.context), self._expectation)

    def _discover(self) -> Topology:
        """Pin the topology, see that it is made of our own engines, and wait for these and for the model."""
        config = self.context.config
        deadline = Deadline.after(self._clock, config.deadlines.discovery_s)
        probe = self._discovery_probe()
        log = self._processes[FRONTEND].spec.log
        wait_for(
            probe,
            deadline=deadline,
            clock=self._clock,
            alive=self.watch,
            interval_s=SNAPSHOT_INTERVAL_S,
            log=log,
            error=DiscoveryError,
        )
        assert probe.topology is not None, "a ready discovery probe has pinned a topology"
        ours = sorted(self.context.url(engine_name(i)) for i in range(config.engines))
        found = sorted(worker.admin_url for worker in probe.topology.workers)
        if found != ours:
            raise DiscoveryError(
                "discovery lists engines that this run did not start",
                expected=", ".join(ours),
                found=", ".join(found),
                where=probe.url,
                log=log,
            )
        health = tuple(HttpProbe(f"engine GET {url}/health", f"{url}/health") for url in found)
        wait = Wait("stack", (*health, frontend.model_probe(self.context)), deadline, log=log)
        wait_all([wait], clock=self._clock, alive=self.watch, interval_s=SNAPSHOT_INTERVAL_S)
        return probe.topology

    def _tell_exit(self, name: str, returncode: int | None, *, expected: bool) -> None:
        if name in self._exits_told:
            return
        self._exits_told.add(name)
        self._emit(ServiceExited(service=name, returncode=returncode, expected=expected))

    def _port_taken(self) -> tuple[str, str, Listener] | None:
        """(service, port's name, holder) of a port of ours on which a foreign program listens."""
        for name, process in self._processes.items():
            own = [row.pid for row in process.snapshot()] if process.started else []
            for port_name, port in process.spec.ports.items():
                holder = intruder(port, own)
                if holder is not None:
                    return name, port_name, holder
        return None


def _standing(process: Process) -> StandingService:
    spec = process.spec
    return StandingService(
        **process.record().fields(), log=spec.log, ports=dict(spec.ports), stop_grace_s=spec.stop_grace_s
    )


def _port_was_taken(died: ServiceDiedError, service: str, port_name: str, holder: Listener) -> ServiceDiedError:
    return ServiceDiedError(
        f"{service} could not have its port {port_name}: another program listens on {holder.port}",
        expected=f"{service} listens on {holder.port}",
        found=f"{holder}; {died.found}",
        where=service,
        hint="end that program or choose another port",
        log=died.log,
    )
