"""On what given processes listen, as the kernel tells it (`/proc`): TCP that listens, UDP that takes from anybody.

Read for each process in its own network namespace, and by inode, so that a socket that several processes hold counts
for each of them. Only reads; knows no service and judges no address.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.proctable import read_row

_PROC = Path("/proc")

Protocol = Literal["tcp", "udp"]

_TABLES: tuple[tuple[str, Protocol], ...] = (("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp"))
# States of include/net/tcp_states.h. An UDP socket is "closed" until it is connected: it then hears one peer only.
_LISTENING: dict[str, str] = {"tcp": "0A", "udp": "07"}
# Columns of /proc/net/tcp; see proc_net_tcp of the kernel's documentation.
_LOCAL, _STATE, _INODE = 1, 3, 9


@dataclass(frozen=True, order=True)
class Socket:
    """One listening socket. `address` as text, IPv4 or IPv6."""

    pid: int
    protocol: Protocol
    address: str
    port: int


@dataclass(frozen=True)
class Sockets:
    """`unread` are processes that live and whose sockets this user may not see: nothing is known of them."""

    listening: frozenset[Socket]
    unread: frozenset[int]


def sockets_of(pids: Iterable[int]) -> Sockets:
    """What these processes listen on now. One that ends meanwhile listens on nothing."""
    tables: dict[str, dict[str, tuple[Protocol, str, int]]] = {}
    found: set[Socket] = set()
    unread: set[int] = set()
    for pid in set(pids):
        try:
            inodes = _inodes(pid)
            namespace = str((_PROC / str(pid) / "ns" / "net").readlink()) if inodes else ""
            if inodes and namespace not in tables:
                tables[namespace] = _listening_sockets(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            # The kernel shows files of a process that has ended, and waits to be asked how, to root alone.
            row = read_row(pid)
            if row is not None and not row.ended:
                unread.add(pid)
            continue
        known = tables.get(namespace, {})
        found |= {Socket(pid, *known[inode]) for inode in inodes if inode in known}
    return Sockets(frozenset(found), frozenset(unread))


def _inodes(pid: int) -> set[str]:
    """Of every socket that the process has open."""
    inodes: set[str] = set()
    for entry in (_PROC / str(pid) / "fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    return inodes


def _listening_sockets(pid: int) -> dict[str, tuple[Protocol, str, int]]:
    """By inode: protocol, address and port, in the network namespace of `pid`."""
    sockets: dict[str, tuple[Protocol, str, int]] = {}
    for table, protocol in _TABLES:
        try:
            lines = (_PROC / str(pid) / "net" / table).read_text().splitlines()[1:]
        except FileNotFoundError:
            if not _PROC.joinpath(str(pid)).exists():
                raise
            continue  # a kernel without IPv6
        for fields in map(str.split, lines):
            if fields[_STATE] == _LISTENING[protocol]:
                address, _, port = fields[_LOCAL].partition(":")
                sockets[fields[_INODE]] = (protocol, address_of(address), int(port, 16))
    return sockets


def address_of(digits: str) -> str:
    """An address of /proc/net: 32-bit words in the machine's byte order, as hexadecimal digits."""
    words = (digits[start : start + 8] for start in range(0, len(digits), 8))
    return str(ipaddress.ip_address(b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)))
