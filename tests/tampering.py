"""Changing files for a moment. Mode and dates of a changed file stay as they were.

Files are moved, never written in place: uv links what it installs from its cache, which others use.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def absent(path: Path, aside: Path) -> Iterator[Path]:
    """The file is in the folder `aside`, of the same file system, for the block."""
    aside.mkdir(exist_ok=True)
    kept = path.rename(aside / path.name)
    try:
        yield kept
    finally:
        kept.replace(path)


@contextlib.contextmanager
def changed(path: Path, content: bytes, aside: Path) -> Iterator[None]:
    """The file has other bytes for the block."""
    with absent(path, aside) as kept:
        path.write_bytes(content)
        shutil.copystat(kept, path)
        yield


def flipped(path: Path, position: int, aside: Path) -> contextlib.AbstractContextManager[None]:
    """One bit of the byte at `position` is another for the block."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << position % 8
    return changed(path, bytes(content), aside)


@contextlib.contextmanager
def added(path: Path) -> Iterator[None]:
    """A file that nobody asked for is there for the block."""
    path.write_bytes(b"x")
    try:
        yield
    finally:
        path.unlink()
