"""Folders that appear whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def published(destination: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `destination` when the block ends without an error.

    When another process published the same destination first, its folder stays and ours is dropped: both were made
    from the same recipe.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        yield scratch
        _finish(scratch)
        try:
            scratch.rename(destination)
        except OSError:
            if not destination.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _finish(folder: Path) -> None:
    """Readable like any other file, and on disk: a rename that survives a crash must not name half a model."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
