"""The engines that serve one model, in rank order: the data that discovery makes and everything after it relies on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.events import Topology as TopologyEvent
from harness.events import Worker as WorkerRecord

TRAINER_RANKS = 1
"""Ranks of the transfer group before the first engine's: the trainer is rank 0 of it."""


@dataclass(frozen=True)
class Worker:
    """One engine with its place in the rank order. `rank_offset` counts from 0 over the engines' ranks alone.

    `routes` are those that its sidecar advertises: what it can do, and not who it is.
    """

    component: str
    instance_id: str
    admin_url: str
    system_url: str
    model: str
    world_size: int
    rank_offset: int
    routes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def transfer_offset(self) -> int:
        """First rank of this engine in the weight-transfer group, which begins with the trainer."""
        return self.rank_offset + TRAINER_RANKS


@dataclass(frozen=True)
class Topology:
    """The engines that serve one model, in rank order."""

    workers: tuple[Worker, ...]

    @property
    def world_size(self) -> int:
        """Ranks of all engines together, without the trainer."""
        return sum(worker.world_size for worker in self.workers)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that must not change between two refits."""
        rows = [
            [w.component, w.instance_id, w.admin_url, w.system_url, w.model, w.world_size, w.rank_offset]
            for w in self.workers
        ]
        return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class Snapshot:
    """A complete answer: the expected ranks are all there."""

    topology: Topology


@dataclass(frozen=True)
class Configured:
    """An engine of the run: its service's name, and how many ranks it was given."""

    name: str
    ranks: int


@dataclass(frozen=True)
class Expectation:
    """What the run was configured for: the model's published name and the ranks of all engines together.

    `engines` has the run's own engines by their admin URLs.
    """

    model: str
    world_size: int
    engines: Mapping[str, Configured] = field(default_factory=dict)

    def name_of(self, admin_url: str) -> str:
        """The service's name; empty for an address that is none of the run's."""
        return self.engines[admin_url].name if admin_url in self.engines else ""


def rank_offsets(world_sizes: Iterable[int]) -> list[int]:
    """First rank of each engine: sizes [2, 1, 4] give offsets [0, 2, 3]."""
    offsets, following = [], 0
    for size in world_sizes:
        offsets.append(following)
        following += size
    return offsets


def describe_change(before: Topology, after: Topology) -> str | None:
    """What differs between two topologies, for people; None when they are the same."""
    if before.fingerprint == after.fingerprint:
        return None
    known = {(w.component, w.instance_id): w for w in before.workers}
    now = {(w.component, w.instance_id): w for w in after.workers}
    parts = [f"gone: {'/'.join(key)}" for key in known if key not in now]
    parts += [f"new: {'/'.join(key)}" for key in now if key not in known]
    parts += [f"changed: {'/'.join(key)}" for key in known if key in now and known[key] != now[key]]
    return ", ".join(parts)


def topology_event(topology: Topology, expected: Expectation) -> TopologyEvent:
    """The evidence for `discovery.topology`."""
    return TopologyEvent(
        world_size=topology.world_size,
        expected_world_size=expected.world_size,
        fingerprint=topology.fingerprint,
        workers=tuple(
            WorkerRecord(
                engine=expected.name_of(worker.admin_url),
                component=worker.component,
                instance_id=worker.instance_id,
                admin_url=worker.admin_url,
                system_url=worker.system_url,
                model=worker.model,
                world_size=worker.world_size,
                rank_offset=worker.rank_offset,
            )
            for worker in topology.workers
        ),
    )
