"""What every service's specification is made from, and the names of services, ports and addresses.

Pure: nothing here looks at the machine. `caller` is the environment of whoever started the run; only a short list of
its variables reaches a service (see `environ`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import RunConfig
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.dialect import Dialect, dialect_named
from harness.environ import service_environment
from harness.gpus import visible
from harness.manifest import Manifest
from harness.refits import REFITS, Refit, chosen

ETCD = "etcd"
FRONTEND = "frontend"
TRAINER = "trainer"

ETCD_PORT = "etcd"
ETCD_PEER_PORT = "etcd-peer"
FRONTEND_PORT = "frontend"
DISCOVERY_PORT = "discovery"
RENDEZVOUS_PORT = "rendezvous"


def engine_name(index: int) -> str:
    """Name of an engine's service, and of its HTTP port."""
    return f"engine-{index}"


def grpc_port(index: int) -> str:
    return f"engine-{index}-grpc"


def component_name(index: int) -> str:
    """Dynamo's component of an engine among several: sorted by it, which is how ranks are given, they are in order."""
    return f"backend-{index:02}"


def sidecar_name(index: int) -> str:
    """Name of a sidecar's service, and of its system port."""
    return f"sidecar-{index}"


@dataclass(frozen=True)
class ServiceContext:
    """The resolved run, the installed stack, the caller's environment, and what every call to the stack carries."""

    config: RunConfig
    manifest: Manifest
    caller: Mapping[str, str]
    credentials: Credentials = NO_CREDENTIALS

    @property
    def dialect(self) -> Dialect:
        return dialect_named(self.manifest.dialect)

    @property
    def refit(self) -> Refit:
        """How weights reach the engines of this run."""
        return REFITS[chosen(self.config.refit, self.dialect)]

    @property
    def python(self) -> Path:
        return self.config.environment / "bin" / "python"

    def command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """A dialect's command, its first word a program of the environment."""
        return (str(self.config.environment / "bin" / words[0]), *words[1:])

    def gpus(self, devices: Sequence[str]) -> dict[str, str]:
        """What a process needs to see exactly these GPUs, and to reach its peers on this machine alone.

        NCCL otherwise listens on the machine's first address. Its settings must be the same on both ends of a refit.
        """
        if self.manifest.platform != "cuda":
            return {}
        loopback = {"NCCL_SOCKET_IFNAME": "lo"} if self.config.host == "127.0.0.1" else {}
        return {**visible(devices), **loopback}

    def hub(self) -> dict[str, str]:
        """Where a model that is served by its name on the hub is found; nothing is fetched."""
        cache = self.config.hub_cache
        return {} if cache is None or self.dialect.renames_models else {"HF_HUB_CACHE": str(cache)}

    @property
    def cache_dir(self) -> Path:
        """Caches of the stack's programs: kept between runs, and made anew when the stack's inputs change."""
        return self.config.project_root / ".cache" / f"stack-{self.manifest.stack}-{self.manifest.inputs[:12]}"

    def log(self, service: str) -> Path:
        return self.config.run_dir / "logs" / f"{service}.log"

    def url(self, port: str) -> str:
        """Base URL, without a trailing slash, of what listens on the port of that name."""
        return f"http://{self.config.host}:{self.config.ports[port]}"

    @property
    def serving_url(self) -> str:
        """Where the policy is sampled: the frontend, or in a control run the engine itself."""
        return self.url(FRONTEND_PORT if self.config.serving == "dynamo" else engine_name(0))

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """A service's complete environment; `own` has the last word. One that names no GPU sees none."""
        own = {**visible(()), **own} if self.manifest.platform == "cuda" else own
        return service_environment(
            self.caller,
            platform=self.manifest.platform,
            environment=self.config.environment,
            tmp_dir=self.config.tmp_dir,
            cache_dir=self.cache_dir,
            own=own,
        )

    def dynamo_environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """What the frontend and the sidecars share: where they meet, and that they meet on loopback.

        Dynamo 1.6 advertises the machine's first address unless each plane is given a host. The direct ZeroMQ event
        plane still binds its publisher to 0.0.0.0, which no variable moves (`DYN_EVENT_PLANE_HOST` only changes the
        advertised address). Naming a broker makes the publisher connect instead of bind. There is no broker behind
        this socket in the run's private folder: the only events are load reports for the KV router, which a stack
        that routes round-robin does not read.
        """
        planes = self.manifest.planes
        host = self.config.host
        shared = {
            "DYN_NAMESPACE": self.config.namespace,
            "DYN_DISCOVERY_BACKEND": planes.discovery,
            "DYN_REQUEST_PLANE": planes.request,
            "DYN_EVENT_PLANE": planes.event,
            "DYN_SYSTEM_HOST": host,
            "DYN_TCP_RPC_HOST": host,
            "DYN_TCP_RESPONSE_STREAM_HOST": host,
            "DYN_ENABLE_RL": "true",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "ETCD_ENDPOINTS": self.url(ETCD_PORT),
            **self.hub(),
        }
        if planes.event == "zmq":
            events = self.config.tmp_dir / "events"
            shared["DYN_EVENT_PLANE_HOST"] = host
            shared["DYN_ZMQ_BROKER_URL"] = f"xsub=ipc://{events}-in,xpub=ipc://{events}-out"
        return self.environment({**shared, **own})
