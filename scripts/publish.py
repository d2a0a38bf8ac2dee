"""Files appear whole or not at all: they are written beside their place and renamed into it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

PARTIAL_PREFIX = ".partial-"


@contextlib.contextmanager
def publishing(target: Path) -> Iterator[Path]:
    """A path beside `target` to write a file or folder to; it becomes `target` when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{PARTIAL_PREFIX}{os.getpid()}-{target.name}")
    remove(partial)
    try:
        yield partial
        if partial.is_file():
            sync(partial)
        partial.replace(target)
    finally:
        remove(partial)


def publish_text(target: Path, text: str) -> None:
    """Write a small text file whole."""
    publish_bytes(target, text.encode())


def publish_bytes(target: Path, content: bytes) -> None:
    """Write a small file whole."""
    with publishing(target) as partial:
        partial.write_bytes(content)


def sweep_partials(folder: Path) -> None:
    """Remove what killed writers left in `folder`; what a living process is still writing stays."""
    for leftover in folder.glob(f"{PARTIAL_PREFIX}*"):
        writer = leftover.name.removeprefix(PARTIAL_PREFIX).partition("-")[0]
        if not (writer.isdecimal() and Path("/proc", writer).exists()):
            remove(leftover)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing to remove is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file's bytes to disk, so that a rename cannot survive a power cut that its contents did not."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
