"""Shared memory that a run left is named; what any living process uses is nobody's to report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.shm import FOLDER, Segment, abandoned, segments

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no /dev/shm on this machine")

HOLD = """
import mmap, os, sys
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
if how == "mapped":
    memory = mmap.mmap(fd, 4096)
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


def of(path: Path, before: frozenset[Segment]) -> list[str]:
    """What is reported of `path`; other programs of this machine may do as they like."""
    return [one for one in abandoned(before) if one == str(path)]


def test_a_segment_that_nobody_uses_any_more_is_named(path: Path) -> None:
    before = segments()
    path.write_bytes(b"left")
    assert of(path, before) == [str(path)]


def test_what_was_there_before_is_not_ours(path: Path) -> None:
    path.write_bytes(b"old")
    assert of(path, segments()) == []


def test_a_later_file_of_the_same_name_is_another(path: Path) -> None:
    path.write_bytes(b"old")
    before = segments()
    kept = path.with_name(path.name + "-kept")
    path.rename(kept)
    path.write_bytes(b"new")
    try:
        assert of(path, before) == [str(path)]
    finally:
        kept.unlink()


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_another_runs_segment_is_left_alone_while_it_lives_and_reported_once_it_is_abandoned(
    path: Path, how: str
) -> None:
    before = segments()
    holder = Holder(path, how)
    try:
        assert of(path, before) == []
    finally:
        holder.leave()
    assert of(path, before) == [str(path)]


def test_a_machine_without_the_folder_has_none(tmp_path: Path) -> None:
    assert segments(tmp_path / "none") == frozenset()
    assert abandoned(frozenset(), tmp_path / "none") == ()


def test_folders_and_links_are_no_segments(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "file").touch()
    assert [one.path.name for one in segments(tmp_path)] == ["file"]
