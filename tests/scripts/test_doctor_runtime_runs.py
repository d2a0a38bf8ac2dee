"""Stacks of earlier runs are found by process, and nobody else's process is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doctor_fakes import FakeMachine, listens, look

from scripts.doctor import runtime_runs

LEFT, ADMIN = runtime_runs.CHECKS
RUNS = "/home/me/smokestack/runs"


def run(name: str, pid: int, *, owner: int | None = None, boot: str = "this-boot") -> dict[str, str]:
    state: dict[str, Any] = {
        "stack": "cpu",
        "boot_id": boot,
        "owner": None if owner is None else {"pid": owner, "start_time": 500 + owner},
        "services": [{"service": "sidecar-0", "pid": pid, "start_time": 500 + pid, "members": [[pid + 1, 501 + pid]]}],
    }
    return {f"{RUNS}/{name}/stack.json": json.dumps(state)}


def process(pid: int, state: str = "S", start: int | None = None) -> dict[str, str]:
    text = f"{pid} (a name) of) {state} 1 " + " ".join(["0"] * 17) + f" {500 + pid if start is None else start} 0\n"
    return {f"/proc/{pid}/stat": text}


def machine(*files: dict[str, str]) -> FakeMachine:
    made = FakeMachine(files={"/proc/sys/kernel/random/boot_id": "this-boot\n"})
    for each in files:
        made.files.update(each)
    return made


def test_no_runs_at_all_are_fine() -> None:
    found = look(LEFT, FakeMachine())
    assert (found.status, found.found) == ("ok", "none is up")


def test_a_stack_that_was_kept_up_is_named_with_its_services_and_how_to_end_it() -> None:
    found = look(LEFT, machine(run("one", 10), process(10)))
    assert (found.status, found.found) == ("warn", "still up: one (sidecar-0)")
    assert found.fix == "./noxw -s down -- --run-dir runs/one"


def test_a_stack_whose_harness_was_killed_is_found_by_its_children_too() -> None:
    found = look(LEFT, machine(run("one", 10, owner=99), process(11)))
    assert (found.status, found.found) == ("warn", "still up: one (sidecar-0)")


def test_several_are_ended_together() -> None:
    found = look(LEFT, machine(run("one", 10), process(10), run("two", 20), process(20)))
    assert found.fix == "./noxw -s down -- --all-runs"


def test_a_run_at_work_is_left_alone() -> None:
    found = look(LEFT, machine(run("one", 10, owner=9), process(10), process(9)))
    assert (found.status, found.found) == ("ok", "at work now, and ended by itself: one")


@pytest.mark.parametrize(
    "fake",
    [
        machine(run("one", 10)),
        machine(run("one", 10), process(10, start=1)),
        machine(run("one", 10), process(10, state="Z")),
        machine(run("one", 10, boot="the-one-before"), process(10)),
        machine(run("one", 10), {"/proc/10/stat": "10 (half) S " + "0 " * 18}),
        machine({f"{RUNS}/one/stack.json": "{"}),
        machine({f"{RUNS}/one/stack.json": "[]"}),
        machine({f"{RUNS}/one/stack.json": "{}"}),
    ],
    ids=[
        "ended",
        "another of that pid",
        "zombie",
        "before the restart",
        "half a line",
        "half a file",
        "a list",
        "empty",
    ],
)
def test_what_does_not_live_is_not_up(fake: FakeMachine) -> None:
    assert look(LEFT, fake).found == "none is up"


def test_the_link_to_the_latest_run_is_not_a_second_one() -> None:
    fake = machine(run("one", 10), run("latest", 10), process(10))
    fake.links[f"{RUNS}/latest"] = "one"
    assert look(LEFT, fake).found == "still up: one (sidecar-0)"


def test_without_a_stack_there_are_no_admin_routes() -> None:
    assert look(ADMIN, listens(FakeMachine(), 10, "00000000", 9000)).status == "skip"


@pytest.mark.parametrize(
    ("table", "address"),
    [
        ("/proc/net/tcp", "0100007F"),
        ("/proc/net/tcp6", "00000000000000000000000001000000"),
        ("/proc/net/tcp6", "0000000000000000FFFF00000100007F"),
    ],
)
def test_services_on_loopback_are_fine(table: str, address: str) -> None:
    found = look(ADMIN, listens(machine(run("one", 10), process(10)), 10, address, 9000, table))
    assert (found.status, found.found) == ("ok", "all services of one do")


@pytest.mark.parametrize(
    ("table", "address", "shown"),
    [
        ("/proc/net/tcp", "00000000", "0.0.0.0"),
        ("/proc/net/tcp", "0501A8C0", "192.168.1.5"),
        ("/proc/net/tcp6", "0" * 32, "::"),
    ],
)
def test_a_service_that_others_can_reach_is_named(table: str, address: str, shown: str) -> None:
    found = look(ADMIN, listens(machine(run("one", 10), process(10)), 10, address, 9000, table))
    assert (found.status, found.found) == ("warn", f"sidecar-0 of one listens on {shown}:9000")
    assert found.fix == "./noxw -s down -- --run-dir runs/one"


def test_the_open_port_of_another_program_is_not_ours() -> None:
    assert look(ADMIN, listens(machine(run("one", 10), process(10)), 77, "00000000", 9000)).status == "ok"
