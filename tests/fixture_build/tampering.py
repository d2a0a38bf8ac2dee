"""Changing a project's files for a moment, in ways that leave mode, size and dates as they were."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def absent(path: Path, aside: Path) -> Iterator[Path]:
    """The file is not there for the block; `aside` is a folder on the same file system, where it is kept.

    Files are moved, never written in place: uv links what it installs from its cache, which others use.
    """
    aside.mkdir(exist_ok=True)
    kept = path.rename(aside / path.name)
    try:
        yield kept
    finally:
        kept.replace(path)


@contextlib.contextmanager
def flipped(path: Path, part: float, aside: Path) -> Iterator[None]:
    """One bit of one byte is another for the block: the first one's at `part` 0.0, the last one's at 1.0."""
    with absent(path, aside) as kept:
        data = bytearray(kept.read_bytes())
        data[round(part * (len(data) - 1))] ^= 1
        path.write_bytes(data)
        shutil.copystat(kept, path)
        yield


@contextlib.contextmanager
def added(path: Path) -> Iterator[None]:
    """A file that nobody asked for is there for the block."""
    path.write_bytes(b"x")
    try:
        yield
    finally:
        path.unlink()
