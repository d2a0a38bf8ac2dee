"""Listening sockets are found whoever holds them: another process group, another session, a child, either family."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from harness import sockets
from harness.exposure import HARNESS, Exposure
from harness.sockets import Socket, address_of, sockets_of

HOLD = """
import socket, sys
family, kind, address, connected = sys.argv[1:]
held = socket.socket(getattr(socket, family), getattr(socket, kind))
held.bind((address, 0))
if kind == "SOCK_STREAM":
    held.listen()
elif connected == "yes":
    held.connect(("127.0.0.1", 9))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""
TCP4, UDP4, TCP6, UDP6 = (
    (family, kind) for family in ("AF_INET", "AF_INET6") for kind in ("SOCK_STREAM", "SOCK_DGRAM")
)
Hold = Callable[..., tuple[int, int]]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Start a process that holds one socket: its pid and the socket's port."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: tuple[str, str], address: str, *, connected: bool = False, **options: bool) -> tuple[int, int]:
        argv = [sys.executable, "-I", "-S", "-c", HOLD, *kind, address, "yes" if connected else "no"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, **options)  # type: ignore[call-overload]
        started.append(process)
        return process.pid, int(process.stdout.readline())

    yield start
    for process in started:
        process.communicate("")


@pytest.mark.parametrize("kind", [TCP4, UDP4])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_socket_is_found_with_its_protocol_address_and_port(hold: Hold, kind: tuple[str, str], address: str) -> None:
    pid, port = hold(kind, address)
    protocol = "tcp" if kind == TCP4 else "udp"
    assert sockets_of([pid]).listening == {Socket(pid, protocol, address, port)}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="a kernel without IPv6")
@pytest.mark.parametrize("kind", [TCP6, UDP6])
@pytest.mark.parametrize("address", ["::1", "::"])
def test_ipv6_is_read_too(hold: Hold, kind: tuple[str, str], address: str) -> None:
    pid, port = hold(kind, address)
    [found] = sockets_of([pid]).listening
    assert (found.address, found.port) == (address, port)


def test_a_datagram_socket_that_hears_one_peer_only_is_no_listener(hold: Hold) -> None:
    pid, _ = hold(UDP4, "0.0.0.0", connected=True)
    assert not sockets_of([pid]).listening


def test_a_listener_of_somebody_else_is_not_ours(hold: Hold) -> None:
    ours, _ = hold(TCP4, "127.0.0.1")
    hold(TCP4, "127.0.0.1")
    assert {one.pid for one in sockets_of([ours]).listening} == {ours}


def test_a_socket_that_two_processes_hold_counts_for_each() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, pass_fds=[server.fileno()], stdin=pipe, stdout=pipe) as child:
            assert child.stdout is not None
            child.stdout.readline()
            port = server.getsockname()[1]
            assert sockets_of([child.pid]).listening == {Socket(child.pid, "tcp", "127.0.0.1", port)}
            child.communicate(b"")


def test_a_process_that_has_ended_listens_on_nothing() -> None:
    done = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    done.wait()
    found = sockets_of([done.pid])
    assert (found.listening, found.unread) == (frozenset(), frozenset())


def _forbidden(_pid: int) -> set[str]:
    raise PermissionError


def test_whoever_is_not_root_may_not_look_at_one_that_waits_to_be_reaped_and_it_listens_on_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "_inodes", _forbidden)
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert sockets_of([zombie.pid]).unread == frozenset()
    assert sockets_of([os.getpid()]).unread == {os.getpid()}, "one that lives is another matter"


def test_what_listened_once_is_still_listed_at_the_end(hold: Hold) -> None:
    exposure = Exposure()
    pid, port = hold(TCP4, "0.0.0.0")
    exposure.look({"trainer": [pid]})
    [kept] = [one for one in exposure.listing("end", {}).sockets if one.service != HARNESS]
    assert (kept.service, kept.pid, kept.address, kept.port) == ("trainer", pid, "0.0.0.0", port)
    assert all(one.service == HARNESS for one in exposure.listing("start", {}).sockets)


def test_this_process_is_a_part_of_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listed = Exposure().listing("start", {}).sockets
        assert (HARNESS, server.getsockname()[1]) in {(one.service, one.port) for one in listed}


@pytest.mark.parametrize(
    ("digits", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "::ffff:7f00:1"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="digits of a little-endian machine")
def test_addresses_are_read_as_the_kernel_writes_them(digits: str, address: str) -> None:
    assert address_of(digits) == address
