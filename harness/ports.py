"""Loopback ports: free ones, chosen and held apart from this user's other runs; fixed ones on request.

A lease is a lock on a file per port, in a folder that all runs of this user share, so that two runs that choose at the
same moment choose differently. It does not keep other programs off the port: `listeners` names those.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from harness.errors import DoctorError, UsageError
from harness.proctable import command_of


def port_names(engines: int) -> tuple[str, ...]:
    """The ports of a run, by the names that the service specifications use; each may be fixed."""
    of_engines = [name for i in range(engines) for name in (f"engine-{i}", f"engine-{i}-grpc", f"sidecar-{i}")]
    return ("etcd", "etcd-peer", *of_engines, "frontend", "discovery", "rendezvous")


_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _LAST = 20_000, 29_999


@dataclass(frozen=True)
class Listener:
    """A program that listens on a TCP port. `pid` is None when this user may not see whose socket it is."""

    address: str
    port: int
    pid: int | None

    def __str__(self) -> str:
        if self.pid is None:
            return f"a program of another user on {self.address}:{self.port} (its pid cannot be seen from here)"
        return f"pid {self.pid} on {self.address}:{self.port}: {command_of(self.pid)}"


def listeners(port: int | None = None) -> list[Listener]:
    """Who listens on `port` (on any port without one), over IPv4 and IPv6, sorted by port."""
    found: set[Listener] = set()
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr:
            address, number = connection.laddr
            if port in (None, number):
                found.add(Listener(address, number, connection.pid))
    return sorted(found, key=lambda one: (one.port, one.address, one.pid or 0))


def intruder(port: int, own: Iterable[int]) -> Listener | None:
    """Who listens on `port` beside the processes `own`, which should have it. An unseen owner is not one of them.

    For a service that ended or stays silent: did another program take its port between the choice and the bind?
    """
    ours = frozenset(own)
    return next((one for one in listeners(port) if one.pid not in ours), None)


def describe_holder(port: int) -> str:
    """Who holds `port`, for messages."""
    holders = [str(one) for one in listeners(port)]
    return "; ".join(holders) or f"port {port} is bound, but nobody listens on it, and the kernel does not tell by whom"


class PortLease:
    """A port that no other run of this user takes until it is released. Also a context manager."""

    def __init__(self, port: int, lock: Path, handle: int) -> None:
        self.port = port
        self._lock = lock
        self._handle: int | None = handle

    def release(self) -> None:
        """Give the port back; a second time does nothing."""
        if self._handle is None:
            return
        # Removed while it is still locked: whoever opened the old file meanwhile finds that it has gone (`_take`).
        self._lock.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> PortLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


class PortRoom:
    """Where ports are leased from: the folder of lock files, `<tmp>/smokestack-<uid>/ports` by default.

    The default does not follow TMPDIR, since runs with different ones must still see each other.
    """

    def __init__(self, folder: Path | None = None, *, seed: int | None = None) -> None:
        self._folder = folder or Path("/tmp") / f"smokestack-{os.getuid()}" / "ports"
        self._random = random.Random(seed)

    def free(self) -> PortLease:
        """A port that is free on loopback and on the wildcard address. Raises `DoctorError` when there is none."""
        for port in self._candidates():
            lease = self._take(port)
            if lease is None:
                continue
            if bind_error(port) is None:
                return lease
            lease.release()
        raise DoctorError("no free port", expected=f"one free TCP port from {_FIRST} to {_LAST}", found="all are taken")

    def fixed(self, name: str, port: int) -> PortLease:
        """Exactly `port`, for the port called `name`. Raises `UsageError` that names the holder when it is taken."""
        if not 1 <= port <= 65535:
            raise UsageError(
                f"port {port} for {name} is no TCP port",
                expected="1 to 65535",
                found=str(port),
                hint=f"give another --port {name}=N, or leave it out: a free one is chosen",
            )
        lease = self._take(port)
        if lease is None:
            found = describe_holder(port) if listeners(port) else "chosen by that run, which does not listen on it yet"
            raise _taken(name, port, found, by=" by another run of this user")
        failed = bind_error(port)
        if failed is None:
            return lease
        lease.release()
        if failed.errno == errno.EACCES:
            raise _taken(name, port, f"{failed.strerror}: ports below 1024 need privileges")
        raise _taken(name, port, describe_holder(port))

    def _candidates(self) -> Iterator[int]:
        """Every port that may be leased, in random order, drawn one at a time."""
        low, high = _ephemeral_range()
        ports = [port for port in range(_FIRST, _LAST + 1) if not low <= port <= high]
        # A kernel that hands out these ports too leaves no better choice than to hope that it does not.
        ports = ports or list(range(_FIRST, _LAST + 1))
        for i in range(len(ports)):
            chosen = self._random.randrange(i, len(ports))
            ports[i], ports[chosen] = ports[chosen], ports[i]
            yield ports[i]

    def _take(self, port: int) -> PortLease | None:
        """Lock the port's file; None when another run holds it."""
        _private(self._folder)
        lock = self._lock_of(port)
        while True:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            if _is_same_file(handle, lock):
                return PortLease(port, lock, handle)
            os.close(handle)

    def _lock_of(self, port: int) -> Path:
        return self._folder / f"{port}.lock"


def _taken(name: str, port: int, found: str, *, by: str = "") -> UsageError:
    return UsageError(
        f"port {port} for {name} is taken{by}",
        expected="a free port",
        found=found,
        where=name,
        hint=f"end that program, or leave out --port {name}={port} so that a free one is chosen",
    )


def bind_error(port: int) -> OSError | None:
    """Why a server could not bind `port` now, on loopback or on every address; None when it is free.

    With SO_REUSEADDR, as servers do, or connections in TIME_WAIT of an earlier run would look like a holder. Linux
    still refuses a port on which somebody listens, on this address or on the wildcard. A socket that is bound with the
    same option and does not listen yet is not seen.
    """
    addresses = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0")]
    if socket.has_dualstack_ipv6():
        addresses.append((socket.AF_INET6, "::"))
    for family, address in addresses:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                tried.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    continue
                return error
    return None


def _ephemeral_range() -> tuple[int, int]:
    """The ports that the kernel gives to outgoing connections, both ends included."""
    try:
        low, high = _EPHEMERAL_RANGE.read_text().split()
    except FileNotFoundError:
        return 32768, 60999
    return int(low), int(high)


def _private(folder: Path) -> None:
    """Make `folder` and its parent for this user alone. Raises `DoctorError` when somebody else made them first."""
    for path in (folder.parent, folder):
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            info = path.lstat()
        except OSError as error:
            raise DoctorError(f"{path} cannot be made", found=error.strerror, where=str(path)) from error
        if info.st_uid != os.getuid() or path.is_symlink():
            raise DoctorError(
                f"{path} is not a folder of this user's own",
                expected=f"a folder that belongs to uid {os.getuid()}",
                found="a link" if path.is_symlink() else f"it belongs to uid {info.st_uid}",
                where=str(path),
                hint=f"remove {path}",
            )


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
