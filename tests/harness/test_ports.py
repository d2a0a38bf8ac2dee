"""Ports are chosen apart from other runs and from everybody who listens; a holder is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ports
from harness.errors import DoctorError, UsageError
from harness.ports import PortLease, PortRoom, bind_error, describe_holder, intruder, listeners


@pytest.fixture
def room(tmp_path: Path) -> PortRoom:
    return PortRoom(tmp_path / "user" / "ports", seed=os.getpid())


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::"])
def taken(request: pytest.FixtureRequest, room: PortRoom) -> Iterator[int]:
    """A port on which this process listens, on loopback or on every address of either family."""
    with room.free() as lease:
        port = lease.port
    family = socket.AF_INET6 if request.param == "::" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind((request.param, port))
        server.listen()
        yield port


@pytest.fixture
def quiet(room: PortRoom) -> Iterator[PortLease]:
    """A free port on which no ended connection lingers (TIME_WAIT), as other tests leave them: anybody can bind it."""
    while True:
        with room.free() as lease:
            try:
                with socket.socket() as plain:
                    plain.bind(("127.0.0.1", lease.port))
            except OSError:
                continue
            yield lease
            return


def test_a_free_port_lies_below_those_of_outgoing_connections_and_can_be_bound(room: PortRoom) -> None:
    with room.free() as lease, socket.socket() as server:
        low, _high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
        assert lease.port < low or low < 20_000
        # As servers do, lest connections that have ended be in their way.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", lease.port))


def test_two_rooms_of_the_same_folder_never_lease_the_same_port(tmp_path: Path) -> None:
    """Two runs with the same luck: the same sequence of candidates."""
    first, second = PortRoom(tmp_path, seed=1), PortRoom(tmp_path, seed=1)
    leases = [room.free() for _ in range(10) for room in (first, second)]
    assert len({lease.port for lease in leases}) == 20
    for lease in leases:
        lease.release()


def test_a_released_port_can_be_leased_again_and_leaves_no_file(tmp_path: Path) -> None:
    room = PortRoom(tmp_path, seed=1)
    with room.free() as lease:
        port = lease.port
        assert len(list(tmp_path.iterdir())) == 1
    lease.release()
    assert list(tmp_path.iterdir()) == []
    with PortRoom(tmp_path, seed=1).free() as again:
        assert again.port == port


def test_the_lease_of_a_run_that_died_does_not_outlive_it(tmp_path: Path) -> None:
    script = (
        "import os\nfrom pathlib import Path\nfrom harness.ports import PortRoom\n"
        f"PortRoom(Path({str(tmp_path)!r})).fixed('etcd', 29123)\nos._exit(3)\n"
    )
    died = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2])
    assert died.returncode == 3
    with PortRoom(tmp_path).fixed("etcd", 29123) as lease:
        assert lease.port == 29123


def test_a_port_that_somebody_listens_on_is_passed_over(
    room: PortRoom, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_FIRST", taken)
    monkeypatch.setattr(ports, "_LAST", taken)
    with pytest.raises(DoctorError, match="no free port"):
        room.free()


def test_the_holder_of_a_fixed_port_is_named(room: PortRoom, taken: int) -> None:
    with pytest.raises(UsageError, match=f"port {taken} for engine-0 is taken") as raised:
        room.fixed("engine-0", taken)
    assert f"pid {os.getpid()}" in str(raised.value.found)
    assert str(taken) in str(raised.value.found)
    assert f"--port engine-0={taken}" in str(raised.value.hint)


def test_a_fixed_port_that_another_run_has_chosen_is_refused(tmp_path: Path) -> None:
    with PortRoom(tmp_path).free() as lease, pytest.raises(UsageError, match="taken by another run"):
        PortRoom(tmp_path).fixed("etcd", lease.port)


def test_a_refused_fixed_port_is_not_kept(room: PortRoom, taken: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        room.fixed("etcd", taken)
    assert list((tmp_path / "user" / "ports").iterdir()) == []


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(room: PortRoom, port: int) -> None:
    with pytest.raises(UsageError, match="no TCP port"):
        room.fixed("etcd", port)


def test_a_bound_socket_that_does_not_listen_is_found_and_cannot_be_named(quiet: PortLease) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", quiet.port))
        assert bind_error(quiet.port) is not None
        assert "does not tell by whom" in describe_holder(quiet.port)


def test_a_connection_in_time_wait_does_not_hold_a_port(room: PortRoom) -> None:
    with room.free() as lease:
        with socket.create_server(("127.0.0.1", lease.port)) as server:
            client = socket.create_connection(("127.0.0.1", lease.port))
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
            client.close()
        assert bind_error(lease.port) is None


def test_listeners_are_listed_with_their_process(room: PortRoom, taken: int) -> None:
    assert [(one.port, one.pid) for one in listeners(taken)] == [(taken, os.getpid())]
    with room.free() as lease:
        assert listeners(lease.port) == []


def test_whoever_listens_on_a_services_port_instead_of_it_is_an_intruder(taken: int) -> None:
    assert intruder(taken, own=[os.getpid()]) is None
    found = intruder(taken, own=[1])
    assert found is not None
    assert found.pid == os.getpid()


def test_a_folder_that_is_a_link_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ports").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DoctorError, match="not a folder of this user's own"):
        PortRoom(tmp_path / "ports").free()
