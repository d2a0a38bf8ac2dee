"""How a stack comes up: services in order, with as much side by side as is safe, then discovery and the model.

etcd and the engines start at once; the frontend when etcd answers; a sidecar when its engine does. Ready means: each
service's own probes, two equal discovery answers with the configured ranks on our own engines, and the model published
by the frontend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.clock import Clock, Deadline
from harness.configured import expected_engines
from harness.discovery import DiscoveryProbe
from harness.errors import DiscoveryError, ServiceDiedError
from harness.events import BaseEvent, ServiceReady
from harness.poller import Wait, wait_all, wait_for
from harness.ports import Listener, intruder
from harness.probes import HttpProbe
from harness.process import Process
from harness.services import engine, etcd, frontend, sidecar
from harness.services.context import FRONTEND, ServiceContext, engine_name, sidecar_name
from harness.services.spec import ServiceSpec
from harness.topology import Topology, topology_event

READY_INTERVAL_S, SNAPSHOT_INTERVAL_S = 0.2, 0.1
"""Seconds between two questions: to services that start, and to a stack whose services have all started."""


@dataclass
class Startup:
    """One bringing-up. `launch` starts a service; `watch` raises when one of those that were started has died."""

    context: ServiceContext
    clock: Clock
    launch: Callable[[ServiceSpec], Process]
    watch: Callable[[], None]
    emit: Callable[[BaseEvent], None]
    _launched: dict[str, Process] = field(default_factory=dict, init=False)
    _began: dict[str, float] = field(default_factory=dict, init=False)

    def run(self) -> Topology:
        """Start everything and pin the topology. Raises NotReadyError, ServiceDiedError or DiscoveryError."""
        try:
            self._start_services()
        except ServiceDiedError as died:
            intruding = self._port_taken()
            if intruding is None:
                raise
            raise _port_was_taken(died, *intruding) from died
        return self._discover()

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
        self._began[spec.name] = self.clock.monotonic()
        self._launched[spec.name] = self.launch(spec)
        return Wait(spec.name, spec.probes, Deadline.after(self.clock, seconds), log=spec.log)

    def _wait(self, waits: list[Wait], follow: Callable[[str], None] | None = None) -> None:
        def on_ready(name: str, _since_wait: float) -> None:
            self.emit(ServiceReady(service=name, seconds=self.clock.monotonic() - self._began[name]))
            if follow is not None:
                follow(name)

        wait_all(waits, clock=self.clock, alive=self.watch, on_ready=on_ready, interval_s=READY_INTERVAL_S)

    def _discover(self) -> Topology:
        """Pin the topology, see that it is made of our own engines, and wait for these and for the model."""
        deadline = Deadline.after(self.clock, self.context.config.deadlines.discovery_s)
        probe = discovery_probe(self.context)
        log = self.context.log(FRONTEND)
        wait_for(
            probe,
            deadline=deadline,
            clock=self.clock,
            alive=self.watch,
            interval_s=SNAPSHOT_INTERVAL_S,
            log=log,
            error=DiscoveryError,
        )
        assert probe.topology is not None, "a ready discovery probe has pinned a topology"
        # Recorded before it is judged: what was found is evidence, above all when it is wrong.
        self.emit(topology_event(probe.topology, probe.expected))
        urls = self._require_own_engines(probe)
        key = self.context.credentials
        health = tuple(HttpProbe(f"engine GET {url}/health", f"{url}/health", credentials=key) for url in urls)
        wait = Wait("stack", (*health, frontend.model_probe(self.context)), deadline, log=log)
        wait_all([wait], clock=self.clock, alive=self.watch, interval_s=SNAPSHOT_INTERVAL_S)
        return probe.topology

    def _require_own_engines(self, probe: DiscoveryProbe) -> list[str]:
        """The engines' addresses. Nothing is sent, and no key shown, to an address that only an answer names."""
        assert probe.topology is not None, "called with a pinned topology"
        workers, indices = probe.topology.workers, range(self.context.config.engines)
        ours = sorted(self.context.url(engine_name(i)) for i in indices)
        for what, mine, listed in (
            ("engines", ours, [worker.admin_url for worker in workers]),
            ("sidecars", sorted(self.context.url(sidecar_name(i)) for i in indices), [w.system_url for w in workers]),
        ):
            if sorted(listed) != mine:
                raise DiscoveryError(
                    f"discovery lists {what} that this run did not start",
                    expected=", ".join(mine),
                    found=", ".join(sorted(listed)),
                    where=probe.url,
                    log=self.context.log(FRONTEND),
                )
        return ours

    def _port_taken(self) -> tuple[str, str, Listener] | None:
        """(service, port's name, holder) of a port of ours on which a foreign program listens.

        A service that a signal ended did not end for its port: whoever listens there came after it.
        """
        for name, process in self._launched.items():
            if (process.poll() or 0) < 0:
                continue
            own = [row.pid for row in process.snapshot()]
            for port_name, port in process.spec.ports.items():
                holder = intruder(port, own)
                if holder is not None:
                    return name, port_name, holder
        return None


def discovery_probe(context: ServiceContext) -> DiscoveryProbe:
    """Asks the frontend for the engines that this run is configured to have."""
    return DiscoveryProbe(frontend.discovery_url(context), expected_engines(context), credentials=context.credentials)


def _port_was_taken(died: ServiceDiedError, service: str, port_name: str, holder: Listener) -> ServiceDiedError:
    return ServiceDiedError(
        f"{service} could not have its port {port_name}: another program listens on {holder.port}",
        expected=f"{service} listens on {holder.port}",
        found=f"{holder}; {died.found}",
        where=service,
        hint="end that program or choose another port",
        log=died.log,
    )
