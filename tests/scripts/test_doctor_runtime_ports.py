"""Ports that were asked for are free, or their holder is named; so are the customary ones and the kernel's range."""

from __future__ import annotations

import os
import socket

import pytest
from doctor_fakes import CPU, FakeMachine, listens, look

from scripts.doctor import runtime_ports
from scripts.doctor.real_machine import RealMachine
from scripts.doctor.registry import Finding
from scripts.doctor.runtime_sockets import holder
from scripts.doctor.subject import Options

ASKED, CUSTOMARY, RANGE = runtime_ports.CHECKS
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
LOOPBACK = "0100007F"


def asked(fake: FakeMachine, **ports: int) -> Finding:
    return look(ASKED, fake, CPU, options=Options(ports=ports))


def test_without_fixed_ports_a_run_chooses() -> None:
    assert look(ASKED, FakeMachine()).status == "skip"


def test_free_ports_are_listed() -> None:
    found = asked(FakeMachine(), frontend=8010, etcd=2379)
    assert (found.status, found.found) == ("ok", "etcd=2379, frontend=8010")


def test_the_holder_of_a_taken_port_is_named_without_its_arguments() -> None:
    fake = listens(FakeMachine(), 4242, LOOPBACK, 8010)
    fake.files["/proc/4242/cmdline"] = "nginx --password SECRET"
    fake.links["/proc/4242/exe"] = "/usr/sbin/nginx (deleted)"
    found = asked(fake, frontend=8010)
    assert (found.status, found.found) == ("fail", "frontend=8010: pid 4242 (nginx) listens there")
    assert found.fix.startswith("./noxw -s smoke -- --stack cpu --port frontend=20000 ")


def test_a_holder_whose_program_may_not_be_seen_has_its_short_name() -> None:
    fake = listens(FakeMachine(files={"/proc/4242/comm": "redis-server\n"}), 4242, LOOPBACK, 8010)
    assert asked(fake, frontend=8010).found == "frontend=8010: pid 4242 (redis-server) listens there"


def test_another_users_holder_is_told_as_such() -> None:
    fake = listens(FakeMachine(), 4242, "00000000", 8010)
    fake.links.clear()
    assert asked(fake, frontend=8010).found == "frontend=8010: a program of another user on 0.0.0.0 listens there"


def test_a_port_that_is_bound_but_not_listened_on_is_taken_too() -> None:
    found = asked(FakeMachine(taken={("0.0.0.0", 8010): "Address already in use"}), frontend=8010)
    assert (found.status, found.found) == ("fail", "frontend=8010: Address already in use")


def test_another_port_is_offered_that_is_free_itself() -> None:
    fake = listens(FakeMachine(taken={("127.0.0.1", 20000): "Address already in use"}), 1, LOOPBACK, 8010)
    assert "--port frontend=20001 " in asked(fake, frontend=8010).fix


@pytest.mark.parametrize(
    ("port", "user", "start", "status"),
    [(80, 1000, None, "fail"), (80, 0, None, "ok"), (80, 1000, "80\n", "ok"), (1024, 1000, None, "ok")],
)
def test_low_ports_need_privileges(port: int, user: int, start: str | None, status: str) -> None:
    fake = FakeMachine(user=user)
    if start:
        fake.files["/proc/sys/net/ipv4/ip_unprivileged_port_start"] = start
    assert asked(fake, frontend=port).status == status


def test_customary_ports_that_are_taken_are_for_those_who_start_by_hand() -> None:
    found = look(CUSTOMARY, listens(FakeMachine(), 4242, LOOPBACK, 2379))
    assert found.status == "warn"
    assert found.found == "etcd=2379: pid 4242 (unknown program) listens there. A run chooses others"


def test_free_customary_ports_are_listed() -> None:
    assert look(CUSTOMARY, FakeMachine()).found == "2379, 2380, 8000, 8001, 8002, 50051"


def test_a_customary_port_that_was_asked_for_is_told_once() -> None:
    fake = listens(FakeMachine(), 4242, LOOPBACK, 8000)
    assert look(CUSTOMARY, fake, CPU, options=Options(ports={"frontend": 8000})).status == "ok"


@pytest.mark.parametrize(
    ("kernel", "ports", "status"),
    [
        ("32768\t60999\n", {}, "ok"),
        ("", {}, "ok"),
        ("1024\t65535\n", {}, "warn"),
        ("20000\t29999\n", {}, "warn"),
        ("20001\t29999\n", {}, "ok"),
        ("20000\t29998\n", {}, "ok"),
        ("32768\t60999\n", {"frontend": 32768}, "warn"),
        ("32768\t60999\n", {"frontend": 60999}, "warn"),
        ("32768\t60999\n", {"frontend": 61000}, "ok"),
        ("32768\t60999\n", {"frontend": 8000}, "ok"),
        ("32768\t60999\n", {"frontend": 8000, "engine-0-grpc": 50051}, "warn"),
    ],
)
def test_the_kernels_own_ports_are_not_for_servers(kernel: str, ports: dict[str, int], status: str) -> None:
    found = look(RANGE, FakeMachine(files={EPHEMERAL: kernel}), CPU, options=Options(ports=ports))
    assert found.status == status


def test_a_fixed_port_of_the_kernels_range_is_named_and_another_offered() -> None:
    fake = FakeMachine(files={EPHEMERAL: "32768\t60999\n"})
    found = look(RANGE, fake, CPU, options=Options(ports={"engine-0-grpc": 50051}))
    assert "engine-0-grpc=50051 may be taken" in found.found
    assert "--port engine-0-grpc=20000 " in found.fix


def test_a_connection_and_half_a_line_are_no_listeners() -> None:
    fake = listens(FakeMachine(), 4242, LOOPBACK, 8010)
    table = fake.files["/proc/net/tcp"]
    fake.files["/proc/net/tcp"] = table.replace(" 0A ", " 01 ") + "   1: 0100007F:1F4A 00000000:0000 0A 0:0 0:0 0 1 0\n"
    assert holder(fake, 8010) is None


def test_on_this_machine_a_listening_test_is_found_to_be_the_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert (holder(RealMachine(), port) or "").startswith(f"pid {os.getpid()} (")
    assert holder(RealMachine(), port) is None
