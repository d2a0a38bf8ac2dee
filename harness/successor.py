"""Names who has taken the place of a service that ended: a process that a supervisor, or a hand, started anew.

To its neighbours a service that was restarted on the same ports looks like the old one. A sidecar goes on with a new
engine under the same instance id, though that engine has the base weights again and no transfer group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import ServiceDiedError
from harness.ports import intruder
from harness.process import Process


@contextmanager
def naming_successor(process: Process) -> Iterator[None]:
    """To a ServiceDiedError of this service, add who listens on its ports now."""
    try:
        yield
    except ServiceDiedError as died:
        own = [one.pid for one in process.tree.recorded]
        successor = next(filter(None, (intruder(port, own) for port in process.spec.ports.values())), None)
        if successor is not None:
            died.what = f"{process.spec.name} was replaced: it has ended, and another process has its port"
            died.found = f"{died.found}; {successor}"
            died.hint = "what answers there now is not what this run started and refitted: start a new run"
        raise
