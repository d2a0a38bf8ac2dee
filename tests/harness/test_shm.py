"""What a run's own processes left in shared memory is removed; what any living process uses is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.shm import FOLDER, SharedMemory, segments

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no /dev/shm on this machine")

HOLD = """
import ctypes, os, sys
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
if how == "mapped":
    # Not the module mmap, which keeps a descriptor of its own.
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    assert libc.mmap(None, 4096, 3, 1, fd, 0) not in (None, ctypes.c_void_p(-1).value)
    os.close(fd)
print("held", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds a segment until it is released."""

    def __init__(self, path: Path, how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", HOLD, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def leave(self) -> None:
        self.process.communicate()


@pytest.fixture
def path(request: pytest.FixtureRequest) -> Iterator[Path]:
    name = FOLDER / f"smokestack-test-{os.getpid()}-{abs(hash(request.node.name)):x}"
    yield name
    with suppress(FileNotFoundError):
        name.unlink()


def abandoned(path: Path, run: SharedMemory) -> bool:
    """Whether `path` is named; other programs of this machine may do as they like."""
    return str(path) in run.abandoned()


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_what_a_process_of_the_run_held_is_removed_after_its_end(path: Path, how: str) -> None:
    run = SharedMemory()
    holder = Holder(path, how)
    run.note([holder.process.pid])
    holder.leave()
    assert run.remove_own() == ()
    assert not path.exists()


def test_what_a_process_of_the_run_still_holds_is_not_removed(path: Path) -> None:
    run = SharedMemory()
    holder = Holder(path, "mapped")
    run.note([holder.process.pid])
    assert run.remove_own() == (str(path),)
    assert path.exists()
    holder.leave()


def test_what_nobody_uses_and_nobody_was_seen_with_is_named_and_not_removed(path: Path) -> None:
    run = SharedMemory()
    path.write_bytes(b"left")
    assert run.remove_own() == ()
    assert abandoned(path, run)
    assert path.exists()


def test_what_was_there_before_is_not_ours_even_if_a_process_of_the_run_holds_it(path: Path) -> None:
    path.write_bytes(b"old")
    run = SharedMemory()
    holder = Holder(path, "mapped")
    run.note([holder.process.pid])
    holder.leave()
    assert run.remove_own() == ()
    assert not abandoned(path, run)
    assert path.exists()


def test_a_later_file_of_the_same_name_is_another(path: Path) -> None:
    path.write_bytes(b"old")
    run = SharedMemory()
    kept = path.with_name(path.name + "-kept")
    path.rename(kept)
    path.write_bytes(b"new")
    try:
        assert abandoned(path, run)
    finally:
        kept.unlink()


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_another_runs_segment_is_left_alone_while_it_lives_and_named_once_it_is_abandoned(path: Path, how: str) -> None:
    run = SharedMemory()
    holder = Holder(path, how)
    try:
        assert not abandoned(path, run)
    finally:
        holder.leave()
    assert abandoned(path, run)


def test_a_machine_without_the_folder_has_none(tmp_path: Path) -> None:
    assert segments(tmp_path / "none") == frozenset()
    assert SharedMemory(tmp_path / "none").abandoned() == ()


def test_folders_and_links_are_no_segments(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "file").touch()
    assert [one.path.name for one in segments(tmp_path)] == ["file"]
