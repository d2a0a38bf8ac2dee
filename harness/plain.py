"""The other side of a matched control: the engines alone, without etcd, frontend and sidecars.

Nobody registers them, so nothing is discovered: the topology is what was configured.
"""

from __future__ import annotations

from harness.configured import configured_topology
from harness.services import engine
from harness.startup import Startup
from harness.topology import Topology


class PlainStartup(Startup):
    """Starts the engines, and is done when each answers for itself."""

    def _start_services(self) -> None:
        seconds = self.context.config.deadlines.engine_s
        indices = range(self.context.config.engines)
        self._wait([self._launch_and_wait(engine.spec(self.context, index), seconds) for index in indices])

    def _discover(self) -> Topology:
        return configured_topology(self.context, sidecars=False)
