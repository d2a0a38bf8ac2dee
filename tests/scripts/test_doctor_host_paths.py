"""The doctor on TMPDIR and the checkout, whose paths sockets and compilers have to take."""

from __future__ import annotations

import pytest
from doctor_fakes import CPU, CUDA, GIB, look
from doctor_hosts import ROOT, machine, the

from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import Space

LONG = "/scratch/" + "x" * 40


@pytest.mark.parametrize(
    ("tmpdir", "status"),
    [
        ("/tmp", "ok"),
        ("/short", "ok"),
        (LONG, "warn"),
        ("/with space", "warn"),
        ("/gone", "fail"),
        ("relative", "fail"),
        ("/closed", "fail"),
    ],
)
def test_sockets_fit_into_tmpdir(tmpdir: str, status: str) -> None:
    made = machine(environ={"TMPDIR": tmpdir}, folders={"/tmp", "/short", "/closed", "/with space", LONG, "relative"})
    made.read_only.add("/closed")
    assert look(the("tmpdir"), made).status == status


def test_a_long_tmpdir_and_no_other_place_fails() -> None:
    made = machine(environ={"TMPDIR": LONG}, folders={LONG})
    assert look(the("tmpdir"), made).status == "fail"


def test_a_tmpdir_mounted_noexec_stops_builds_only() -> None:
    noexec = {"/": Space("/", 100 * GIB, 60 * GIB), "/tmp": Space("/tmp", GIB, GIB, noexec=True)}
    assert look(the("tmpdir"), machine(spaces=noexec), CUDA, purpose="build").status == "fail"
    assert look(the("tmpdir"), machine(spaces=noexec), CUDA, purpose="run").status == "ok"
    assert look(the("tmpdir"), machine(spaces=noexec), CPU).status == "ok"


@pytest.mark.parametrize(
    ("root", "stack", "status"),
    [
        ("/home/me/smoke stack", CPU, "ok"),
        ("/home/me/smoke stack", CUDA, "fail"),
        ("/home/me/smoke=stack", CPU, "ok"),
        ("/home/me/smoke=stack", CUDA, "fail"),
        ("/home/" + "x" * 200, CPU, "warn"),
    ],
)
def test_compilers_can_be_told_the_checkouts_path(root: str, stack: StackFacts, status: str) -> None:
    made = machine()
    made.folders.add(root)
    found = look(the("checkout"), made, stack, root=root)
    assert found.status == status
    if status != "ok":
        assert found.fix.startswith("cp -a ")


def test_a_checkout_that_cannot_be_written_or_run_from_fails() -> None:
    made = machine()
    made.read_only.add(ROOT)
    assert look(the("checkout"), made).fix == f'sudo chown -R "$(id -u)" {ROOT}'
    noexec = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB, noexec=True)})
    assert look(the("checkout"), noexec).status == "fail"
