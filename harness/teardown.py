"""How services end together: who asks goes before whoever is asked, and within a phase the graces overlap.

Serves both a stack of this process and one that an earlier command left running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.ending import Stopped
from harness.errors import TeardownError
from harness.events import Survivor
from harness.ports import listeners
from harness.proctable import read_row
from harness.services.context import ETCD, FRONTEND
from harness.survivors import ProcessTree, find_survivors

_CLIENTS, _SERVERS, _STORE = range(3)


@dataclass(frozen=True)
class Leftovers:
    """What was still there after everything had been stopped: nothing, if the teardown was clean.

    `ports` are those on which somebody listens who is not older than the run. `strangers` describes older ones. `files`
    are shared memory of it.
    """

    survivors: tuple[Survivor, ...]
    ports: tuple[int, ...]
    seconds: float
    strangers: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class StopError(TeardownError):
    """Services whose stop failed, after all others were stopped; `ended` tells of these."""

    def __init__(self, failures: Sequence[tuple[str, Exception]], ended: Sequence[Stopped]) -> None:
        names = ", ".join(service for service, _ in failures)
        super().__init__(
            f"stopping failed: {names}",
            expected="every stop ends by itself",
            found="; ".join(f"{service}: {type(error).__name__}: {error}" for service, error in failures),
            where=names,
        )
        self.ended = list(ended)


def phase_of(service: str) -> int:
    """Trainer and sidecars end first, frontend and engines next, etcd last."""
    if service == ETCD:
        return _STORE
    return _SERVERS if service == FRONTEND or service.startswith("engine-") else _CLIENTS


def stop_in_phases(stops: Mapping[str, Callable[[], Stopped]]) -> list[Stopped]:
    """Call every service's `stop`, side by side within a phase, one phase after the other.

    A stop that raises keeps no other from being called; `StopError` is raised at the end.
    """
    ended: list[Stopped] = []
    failures: list[tuple[str, Exception]] = []
    for phase in (_CLIENTS, _SERVERS, _STORE):
        calls = {service: stop for service, stop in stops.items() if phase_of(service) == phase}
        if not calls:
            continue
        with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="stop") as pool:
            running = {service: pool.submit(stop) for service, stop in calls.items()}
        for service, call in running.items():
            try:
                ended.append(call.result())
            except Exception as error:  # noqa: BLE001 - raised again below, after the other services were stopped
                failures.append((service, error))
    if failures:
        raise StopError(failures, ended) from failures[0][1]
    return ended


def _is_younger(pid: int | None, first: int | None) -> bool:
    """Whether the process began at or after `first` (clock ticks since boot); False for one that cannot be seen."""
    row = None if pid is None else read_row(pid)
    return row is not None and first is not None and row.id.start_time >= first


def look_around(run_id: str, trees: Iterable[ProcessTree], ports: Iterable[int], *, seconds: float) -> Leftovers:
    """Search for what is left of a run: its processes, and whoever listens on its ports.

    The ports were free when the run leased them. Who listens there and is older than all of its services is a stranger;
    anybody younger counts as left behind, whether it can be traced to the run or not.
    """
    wanted, all_trees = frozenset(ports), list(trees)
    survivors = find_survivors(run_id, all_trees)
    first = min((tree.leader.start_time for tree in all_trees), default=None)
    listening = [one for one in listeners() if one.port in wanted]
    own = {one.pid for one in survivors} | {one.pid for one in listening if _is_younger(one.pid, first)}
    return Leftovers(
        survivors=tuple(Survivor(pid=one.pid, service=one.service, cmd=one.cmd) for one in survivors),
        ports=tuple(sorted({one.port for one in listening if one.pid in own})),
        seconds=seconds,
        strangers=tuple(str(one) for one in listening if one.pid not in own),
    )
