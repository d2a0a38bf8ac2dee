"""The doctor on the room for each phase."""

from __future__ import annotations

import pytest
from doctor_fakes import CPU, CUDA, GIB, look
from doctor_hosts import ROOT, machine, the

from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import Space


@pytest.mark.parametrize(
    ("name", "stack", "free", "status"),
    [
        ("disk-build", CPU, 1, "fail"),
        ("disk-build", CPU, 3, "ok"),
        ("disk-build", CUDA, 30, "fail"),
        ("disk-build", CUDA, 60, "ok"),
        ("disk-install", CPU, 4, "fail"),
        ("disk-install", CPU, 7, "ok"),
        ("disk-run", CPU, 0.5, "fail"),
        ("disk-run", CPU, 1, "ok"),
    ],
)
def test_there_is_room_for_each_phase(name: str, stack: StackFacts, free: float, status: str) -> None:
    made = machine(spaces={"/": Space("/", 100 * GIB, int(free * GIB))})
    found = look(the(name), made, stack)
    assert found.status == status
    assert found.fix.startswith("./noxw -s clean") == (status == "fail")


def test_what_is_made_already_needs_little_room_but_a_word() -> None:
    made = machine(spaces={"/": Space("/", 100 * GIB, GIB)})
    made.files[f"{ROOT}/dist/cpu/manifest.json"] = "{}"
    assert look(the("disk-build"), made).status == "warn"
    made.spaces["/"] = Space("/", 100 * GIB, GIB // 8)
    assert look(the("disk-build"), made).status == "fail"


def test_a_small_file_system_at_tmpdir_is_seen_apart_from_the_large_one() -> None:
    small = {"/": Space("/", 100 * GIB, 60 * GIB), "/tmp": Space("/tmp", GIB, GIB // 8)}
    found = look(the("disk-run"), machine(spaces=small))
    assert (found.status, found.found) == ("fail", "60.0 GiB at /; 0.1 GiB at /tmp")


def test_a_file_system_without_inodes_or_read_only_or_gone_is_full() -> None:
    few = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB, files_free=100)})
    assert look(the("disk-build"), few).found == "60.0 GiB at /, but only 100 files"
    closed = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB, read_only=True)})
    assert look(the("disk-build"), closed).fix == "sudo mount -o remount,rw /"
    assert look(the("disk-build"), machine(spaces={})).status == "fail"


def test_a_home_that_may_not_be_written_needs_another_place_for_uvs_cache() -> None:
    made = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB), "/home": Space("/home", 100 * GIB, 60 * GIB)})
    assert look(the("disk-install"), made).status == "ok"
    made.read_only.add("/home")
    found = look(the("disk-install"), made)
    assert (found.status, found.found) == ("fail", "/home/me/.cache/uv may not be written")
    assert found.fix == "export UV_CACHE_DIR=/var/tmp/uv-cache"
