"""Limits and kernel settings under which a stack would not start are named with the command that lifts them."""

from __future__ import annotations

import pytest
from doctor_fakes import CPU, CUDA, FakeMachine, look

from scripts.doctor import runtime_limits
from scripts.doctor.facts import StackFacts
from scripts.doctor.real_machine import RealMachine

PROCESSES, LOCKED, OVERCOMMIT, MAPS = runtime_limits.CHECKS
CARD = "/sys/class/infiniband/mlx5_0/node_type"


def limits(
    processes: tuple[str, str] = ("unlimited", "unlimited"), locked: str = "8388608", *files: str
) -> FakeMachine:
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max processes             {processes[0]:<20} {processes[1]:<20} processes \n"
        f"Max locked memory         {locked:<20} {locked:<20} bytes     \n"
    )
    return FakeMachine(files={"/proc/self/limits": text, **dict.fromkeys(files, "")})


@pytest.mark.parametrize(
    ("soft", "hard", "status", "fix"),
    [
        ("unlimited", "unlimited", "ok", ""),
        ("2048", "2048", "ok", ""),
        ("1024", "2048", "warn", "ulimit -u 2048"),
        ("1024", "unlimited", "warn", "ulimit -u 2048"),
        ("1024", "1024", "warn", "echo '* - nproc 2048' | sudo tee -a /etc/security/limits.conf   # log in again"),
    ],
)
def test_a_low_limit_of_processes_is_lifted_where_this_user_can(soft: str, hard: str, status: str, fix: str) -> None:
    found = look(PROCESSES, limits((soft, hard)))
    assert (found.status, found.fix) == (status, fix)


def test_limits_that_cannot_be_read_are_no_fault() -> None:
    assert [look(each, FakeMachine(), CUDA).status for each in (PROCESSES, LOCKED)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("stack", "locked", "files", "status"),
    [
        (CPU, "65536", (CARD,), "ok"),
        (CUDA, "65536", (), "ok"),
        (CUDA, "unlimited", (CARD,), "ok"),
        (CUDA, "65536", (CARD,), "warn"),
    ],
)
def test_locked_memory_matters_with_infiniband_only(
    stack: StackFacts, locked: str, files: tuple[str, ...], status: str
) -> None:
    assert look(LOCKED, limits(("1", "1"), locked, *files), stack).status == status


@pytest.mark.parametrize(
    ("value", "stack", "status"),
    [("0\n", CUDA, "ok"), ("1\n", CUDA, "ok"), ("2\n", CPU, "warn"), ("2\n", CUDA, "fail"), (None, CUDA, "ok")],
)
def test_strict_accounting_keeps_gpu_programs_from_starting(value: str | None, stack: StackFacts, status: str) -> None:
    files = {} if value is None else {"/proc/sys/vm/overcommit_memory": value}
    assert look(OVERCOMMIT, FakeMachine(files=files), stack).status == status


@pytest.mark.parametrize(("value", "status"), [("65530\n", "ok"), ("1024\n", "warn"), ("", "ok")])
def test_few_memory_maps_are_a_warning(value: str, status: str) -> None:
    assert look(MAPS, FakeMachine(files={"/proc/sys/vm/max_map_count": value})).status == status


@pytest.mark.parametrize("path", ["/proc/sys/vm/overcommit_memory", "/proc/sys/vm/max_map_count", "/proc/self/limits"])
def test_this_machine_tells_them(path: str) -> None:
    assert RealMachine().read_text(path)
