"""How services end together: who asks goes before whoever is asked, and within a phase the graces overlap.

Serves both a stack of this process and one that an earlier command left running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.ending import Stopped
from harness.events import Survivor
from harness.ports import listeners
from harness.services.context import ETCD, FRONTEND
from harness.survivors import ProcessTree, find_survivors

_CLIENTS, _SERVERS, _STORE = range(3)


@dataclass(frozen=True)
class Leftovers:
    """What was still there after everything had been stopped: nothing, if the teardown was clean."""

    survivors: tuple[Survivor, ...]
    ports: tuple[int, ...]
    seconds: float


def phase_of(service: str) -> int:
    """Trainer and sidecars end first, frontend and engines next, etcd last."""
    if service == ETCD:
        return _STORE
    return _SERVERS if service == FRONTEND or service.startswith("engine-") else _CLIENTS


def stop_in_phases(stops: Mapping[str, Callable[[], Stopped]]) -> list[Stopped]:
    """Call every service's `stop`, side by side within a phase, one phase after the other."""
    ended: list[Stopped] = []
    for phase in (_CLIENTS, _SERVERS, _STORE):
        calls = [stop for service, stop in stops.items() if phase_of(service) == phase]
        if calls:
            with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="stop") as pool:
                ended += pool.map(lambda stop: stop(), calls)
    return ended


def look_around(run_id: str, trees: Iterable[ProcessTree], ports: Iterable[int], *, seconds: float) -> Leftovers:
    """Search for what is left of a run: its processes, and anybody who listens on its ports."""
    wanted = frozenset(ports)
    return Leftovers(
        survivors=tuple(
            Survivor(pid=one.pid, service=one.service, cmd=one.cmd) for one in find_survivors(run_id, trees)
        ),
        ports=tuple(sorted({one.port for one in listeners() if one.port in wanted})),
        seconds=seconds,
    )
