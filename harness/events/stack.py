"""Events about the stack itself: its pins, services, topology and processes, and what these hold of the machine."""

from __future__ import annotations

from typing import Literal

from harness.events.base import Count, Data, Flag, HarnessEvent, Whole


class ServiceStarted(HarnessEvent):
    """`start_time` (seconds since the machine booted) together with the pid names one process for good.

    `nice` is by how much its priority is lower than that of the harness (see nice(2)).
    """

    kind: Literal["service.started"] = "service.started"
    service: str
    pid: Count
    start_time: float
    log: str
    nice: int = 0


class ServiceReady(HarnessEvent):
    kind: Literal["service.ready"] = "service.ready"
    service: str
    seconds: float


class ServiceExited(HarnessEvent):
    """`expected` is true when the run itself asked the service to end."""

    kind: Literal["service.exited"] = "service.exited"
    service: str
    returncode: int | None
    expected: Flag


class BinaryHashes(Data):
    """SHA-256 of a binary: as pinned, and as read from the environment (None: no such file)."""

    expected: str
    found: str | None


class Pins(HarnessEvent):
    """What the manifest pins and all that the environment holds; a `found` of None is a package that is not there."""

    kind: Literal["pins"] = "pins"
    expected: dict[str, str]
    found: dict[str, str | None]
    binaries: dict[str, BinaryHashes]


class Worker(Data):
    """One record of the discovery answer: one engine, which is `world_size` ranks from `rank_offset` on.

    `engine` is its service's name, empty where no service of the run has its address.
    """

    engine: str = ""
    component: str
    instance_id: Whole | str
    admin_url: str
    system_url: str
    model: str
    world_size: Count
    rank_offset: Count


class Topology(HarnessEvent):
    """The pinned discovery snapshot. `expected_world_size` is configured, not discovered."""

    kind: Literal["topology"] = "topology"
    world_size: Count
    expected_world_size: Count
    fingerprint: str
    workers: tuple[Worker, ...]


class ProcessRecord(Data):
    service: str
    pid: Count
    start_time: float


class Processes(HarnessEvent):
    """Every process of the stack's services, and the topology's fingerprint, at the start or end of training."""

    kind: Literal["processes"] = "processes"
    when: Literal["start", "end"]
    fingerprint: str
    processes: tuple[ProcessRecord, ...]


class ListeningSocket(Data):
    """TCP that listens, or UDP that is connected to nobody. `address` is IPv4 or IPv6."""

    service: str
    pid: Count
    protocol: Literal["tcp", "udp"]
    address: str
    port: Count


class Listening(HarnessEvent):
    """On what the run's own processes listen: at the start those of that moment, at the end all that were ever seen.

    `unread` are pids whose sockets could not be looked at.
    """

    kind: Literal["listening"] = "listening"
    when: Literal["start", "end"]
    sockets: tuple[ListeningSocket, ...]
    unread: tuple[Count, ...]


class GpuProcess(Data):
    """A process with memory of a GPU; None where the driver does not tell how much."""

    pid: Count
    program: str
    used_mib: Count | None


class GpuUse(Data):
    """One GPU of the run, named as `CUDA_VISIBLE_DEVICES` names it."""

    name: str
    used_mib: Count | None
    processes: tuple[GpuProcess, ...]


class GpuMemory(HarnessEvent):
    """What was in use of the run's GPUs, by whomever: before anything was started, and after all of it was ended."""

    kind: Literal["gpu.memory"] = "gpu.memory"
    when: Literal["start", "end"]
    gpus: tuple[GpuUse, ...]
