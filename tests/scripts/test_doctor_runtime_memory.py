"""/dev/shm is large enough for the stack, and what dead engines left in it is named."""

from __future__ import annotations

import pytest
from doctor_fakes import CPU, CUDA, FakeMachine, look

from scripts.doctor import runtime_memory
from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import READ_LIMIT, Space

SIZE, LEFT = runtime_memory.CHECKS
MIB = 1 << 20
NOW = 1_800_000_000.0


def shm(free: int, total: int = 4096, **more: bool) -> FakeMachine:
    return FakeMachine(folders={"/dev/shm"}, spaces={"/dev/shm": Space("/dev/shm", total * MIB, free * MIB, **more)})


@pytest.mark.parametrize(
    ("stack", "free", "status"),
    [
        (CPU, 4096, "ok"),
        (CPU, 512, "ok"),
        (CPU, 511, "warn"),
        (CPU, 64, "warn"),
        (CPU, 63, "fail"),
        (CUDA, 1024, "ok"),
        (CUDA, 1023, "fail"),
        (CUDA, 64, "fail"),
    ],
)
def test_a_gpu_stack_needs_a_gibibyte_and_one_rank_on_the_cpu_little(stack: StackFacts, free: int, status: str) -> None:
    found = look(SIZE, shm(free), stack)
    assert (found.status, found.found.split(" MiB")[0]) == (status, f"{free} of 4096")
    assert found.fix.startswith("sudo mount -o remount,size=2G /dev/shm" if found.fix else "")


def test_a_full_dev_shm_fails_however_large_it_is() -> None:
    assert look(SIZE, shm(0)).status == "fail"


def test_a_dev_shm_that_is_only_a_folder_or_not_there_fails() -> None:
    root = Space("/", 1 << 40, 1 << 40)
    for fake in (FakeMachine(spaces={"/": root}), FakeMachine(folders={"/dev/shm"}, spaces={"/": root})):
        found = look(SIZE, fake)
        assert (found.status, found.found) == ("fail", "no /dev/shm")


def test_a_dev_shm_that_is_closed_fails() -> None:
    closed = shm(4096)
    closed.read_only.add("/dev/shm")
    for fake in (closed, shm(4096, read_only=True)):
        found = look(SIZE, fake)
        assert (found.status, found.found) == ("fail", "/dev/shm cannot be written to")


def leftovers(*names: str, age: float = 3600.0, owner: int = 1000) -> FakeMachine:
    paths = [f"/dev/shm/{name}" for name in names]
    return FakeMachine(
        sizes=dict.fromkeys(paths, 100 * MIB),
        times=dict.fromkeys(paths, NOW - age),
        owners=dict.fromkeys(paths, owner),
        clock=NOW,
    )


def test_an_empty_dev_shm_is_fine() -> None:
    assert look(LEFT, FakeMachine(folders={"/dev/shm"})).found == "nothing"


def test_segments_that_nobody_holds_are_counted_and_named_in_the_fix() -> None:
    found = look(LEFT, leftovers("psm_1a2b", "torch_x y", "somebody-elses"))
    assert (found.status, found.found) == ("warn", "2 files, 200 MiB, used by nobody")
    assert found.fix == "rm /dev/shm/psm_1a2b '/dev/shm/torch_x y'"


def test_semaphores_are_nobodys_leftovers() -> None:
    """A living process has its own ones mapped by another name, which is gone."""
    fake = leftovers("sem.mp-1a2b")
    fake.files["/proc/7/maps"] = "7f00-7f01 rw-s 00000000 00:19 42          /dev/shm/sem.XkJ2aB (deleted)\n"
    assert look(LEFT, fake).found == "nothing"


def test_a_segment_that_is_mapped_or_open_is_used() -> None:
    fake = leftovers("psm_1", "psm_2")
    fake.files["/proc/7/maps"] = "7f00-7f01 rw-s 00000000 00:19 42          /dev/shm/psm_1\n"
    fake.folders.add("/proc/8/fd")
    fake.links["/proc/8/fd/3"] = "/dev/shm/psm_2"
    assert look(LEFT, fake).status == "ok"


@pytest.mark.parametrize("fake", [leftovers("psm_1", age=5.0), leftovers("psm_1", owner=0)])
def test_a_fresh_one_and_another_users_are_left_alone(fake: FakeMachine) -> None:
    assert look(LEFT, fake).status == "ok"


def test_a_process_whose_maps_are_too_long_to_read_may_hold_everything() -> None:
    fake = leftovers("psm_1")
    fake.files["/proc/7/maps"] = "x" * READ_LIMIT
    assert look(LEFT, fake).status == "ok"
