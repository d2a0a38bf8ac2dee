"""Who listens on which TCP port, from /proc alone. Holds no check.

Whose socket it is can be seen for this user's own processes only; root sees all.
"""

from __future__ import annotations

import ipaddress
import os.path
from collections.abc import Iterable
from dataclasses import dataclass

from scripts.doctor.machine import Machine

_LISTENING = "0A"
_SOCKET = "socket:["


@dataclass(frozen=True)
class Listener:
    """A listening socket; `inode` tells it from others."""

    address: str
    port: int
    inode: str

    @property
    def loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def listeners(machine: Machine) -> tuple[Listener, ...]:
    """All of them. The kernel lists those that listen before the connections, so that a limit cuts off none."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (machine.read_text(table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING:
                address, _, port = fields[1].partition(":")
                found.append(Listener(_address(address), int(port, 16), fields[9]))
    return tuple(found)


def _address(text: str) -> str:
    """The kernel writes each four bytes in the machine's own order, which is the little-endian one here."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def sockets_of(machine: Machine, pids: Iterable[int]) -> frozenset[str]:
    """The inodes of the sockets that these processes have open, as far as they may be seen."""
    found = set()
    for pid in pids:
        for descriptor in machine.entries(f"/proc/{pid}/fd") or ():
            target = machine.link(f"/proc/{pid}/fd/{descriptor}") or ""
            if target.startswith(_SOCKET):
                found.add(target[len(_SOCKET) : -1])
    return frozenset(found)


def holder(machine: Machine, port: int) -> str | None:
    """Who listens on `port`, in words; None when nobody does."""
    wanted = {listener.inode: listener for listener in listeners(machine) if listener.port == port}
    if not wanted:
        return None
    for pid in sorted(int(name) for name in machine.entries("/proc") or () if name.isdecimal()):
        if wanted.keys() & sockets_of(machine, (pid,)):
            return f"pid {pid} ({program(machine, pid)})"
    first = next(iter(wanted.values()))
    return f"a program of another user on {first.address}"


def program(machine: Machine, pid: int) -> str:
    """A process's program, without its arguments: these may hold secrets."""
    executable = machine.link(f"/proc/{pid}/exe")
    if executable:
        return os.path.basename(executable.replace(" (deleted)", ""))  # noqa: PTH119 - a text of the kernel
    return (machine.read_text(f"/proc/{pid}/comm") or "").strip() or "unknown program"
