"""Loopback, IPv6, proxies and /tmp are fit for a run."""

from __future__ import annotations

import pytest
from doctor_fakes import CPU, FakeMachine, look, subject

from scripts.doctor import runtime_network
from scripts.doctor.machine import Space
from scripts.doctor.real_machine import RealMachine
from scripts.doctor.subject import Subject

LOOPBACK, IPV6, PROXY, SCRATCH = runtime_network.CHECKS
LO6 = "00000000000000000000000000000001 01 80 10 80       lo\n"
OFF6 = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"


def test_loopback_that_works_is_fine() -> None:
    found = look(LOOPBACK, FakeMachine())
    assert (found.status, found.found) == ("ok", "127.0.0.1 can be bound, localhost is 127.0.0.1")


def test_a_loopback_that_is_down_fails() -> None:
    found = look(LOOPBACK, FakeMachine(taken={("127.0.0.1", 0): "Cannot assign requested address"}))
    assert (found.status, found.fix) == ("fail", "sudo ip link set lo up")


def test_a_localhost_that_resolves_to_nothing_or_elsewhere_fails() -> None:
    found = look(LOOPBACK, FakeMachine(hosts={}))
    assert (found.status, found.found) == ("fail", "localhost resolves to nothing")
    found = look(LOOPBACK, FakeMachine(hosts={"localhost": ("10.0.0.7", "127.0.0.1")}))
    assert (found.status, found.found) == ("fail", "localhost resolves to 10.0.0.7")


@pytest.mark.parametrize(
    ("localhost", "interfaces", "refusal", "status"),
    [
        (("127.0.0.1", "::1"), LO6, None, "ok"),
        (("127.0.0.1",), LO6, None, "ok"),
        (("127.0.0.1",), "", "Cannot assign requested address", "ok"),
        (("127.0.0.1", "::1"), "", "Cannot assign requested address", "warn"),
        (("127.0.0.1", "::1"), LO6, "Address family not supported", "warn"),
    ],
)
def test_half_of_ipv6_is_a_warning(
    localhost: tuple[str, ...], interfaces: str, refusal: str | None, status: str
) -> None:
    taken = {} if refusal is None else {("::1", 0): refusal}
    fake = FakeMachine(hosts={"localhost": localhost}, files={"/proc/net/if_inet6": interfaces}, taken=taken)
    assert look(IPV6, fake).status == status


def test_ipv6_that_is_switched_off_is_switched_on_or_its_name_taken_away() -> None:
    fake = FakeMachine(hosts={"localhost": ("::1",)}, files={OFF6: "1\n"}, taken={("::1", 0): "no"})
    assert look(IPV6, fake).fix == "sudo sysctl -w net.ipv6.conf.lo.disable_ipv6=0"
    del fake.files[OFF6]
    assert "/etc/hosts" in look(IPV6, fake).fix


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({}, "ok"),
        ({"http_proxy": ""}, "ok"),
        ({"HTTP_PROXY": "http://me:SECRET@proxy:3128"}, "warn"),
        ({"HTTP_PROXY": "http://p", "NO_PROXY": "localhost"}, "warn"),
        ({"ALL_PROXY": "http://p", "no_proxy": "localhost, 127.0.0.1"}, "ok"),
        ({"https_proxy": "http://p", "NO_PROXY": "*"}, "ok"),
    ],
)
def test_a_proxy_without_loopback_exempt_is_a_warning_that_shows_no_value(environ: dict[str, str], status: str) -> None:
    found = look(PROXY, FakeMachine(environ=environ))
    assert found.status == status
    assert "SECRET" not in found.found
    assert all(name in found.found for name in environ if environ[name] and name.lower() != "no_proxy")


def tmp(**more: object) -> FakeMachine:
    made = FakeMachine(folders={"/tmp"}, spaces={"/tmp": Space("/tmp", 1 << 34, 1 << 33)})
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_tmp_that_can_be_written_to_is_fine() -> None:
    assert look(SCRATCH, tmp()).found == "/tmp, 8192 MiB free"


@pytest.mark.parametrize(
    ("fake", "found"),
    [
        (FakeMachine(), "no /tmp"),
        (tmp(read_only={"/tmp"}), "/tmp cannot be written to"),
        (tmp(spaces={"/tmp": Space("/tmp", 1, 1, read_only=True)}), "/tmp is mounted read-only"),
        (
            tmp(folders={"/tmp", "/tmp/smokestack-1000"}, owners={"/tmp/smokestack-1000": 7}),
            "/tmp/smokestack-1000 belongs to uid 7",
        ),
    ],
)
def test_a_tmp_that_is_of_no_use_fails(fake: FakeMachine, found: str) -> None:
    seen = look(SCRATCH, fake)
    assert (seen.status, seen.found) == ("fail", found)


def test_a_tmp_whose_space_cannot_be_read_is_skipped() -> None:
    assert look(SCRATCH, tmp(spaces={})).status == "skip"


def test_this_machine_has_a_loopback() -> None:
    real = Subject(subject(FakeMachine()).root, CPU, RealMachine())
    assert LOOPBACK.look(real).status == "ok"
