"""How much an item occupies, and when it was last written. Links are measured, never followed."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 512


def measure(path: Path) -> tuple[int, float]:
    """Bytes on disk that its removal frees, and the newest modification time in it (seconds).

    A file that has names elsewhere too, as uv links them from its cache, would stay there and frees nothing.
    """
    names: Counter[tuple[int, int]] = Counter()
    size, newest = 0, 0.0
    for status in _statuses(path):
        newest = max(newest, status.st_mtime)
        inode = (status.st_dev, status.st_ino)
        names[inode] += 1
        # A folder's links are its own entries.
        if status.st_nlink == names[inode] or stat.S_ISDIR(status.st_mode):
            size += status.st_blocks * _BLOCK_BYTES
    return size, newest


def _statuses(path: Path) -> Iterator[os.stat_result]:
    yield path.lstat()
    if path.is_symlink() or not path.is_dir():
        return
    with os.scandir(path) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _statuses(Path(entry.path))
            else:
                yield entry.stat(follow_symlinks=False)
