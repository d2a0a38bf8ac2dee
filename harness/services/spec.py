"""What a service is: the data that `process` starts, `poller` waits for and `stack` keeps in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.probes import Probe


@dataclass(frozen=True)
class ServiceSpec:
    """One service of the stack.

    `env` is the child's complete environment (nothing is inherited). `stop_grace_s` is the time in seconds from
    SIGTERM to SIGKILL. `pass_fds` are inherited file descriptors. `nice` lowers its share of the cores, see `priority`.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    probes: tuple[Probe, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    stop_grace_s: float = 10.0
    pass_fds: tuple[int, ...] = ()
    nice: int = 0
