"""One writer per stack at a time: a file lock that ends with its holder, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from scripts.console import Console


@contextlib.contextmanager
def exclusive(mutex: Path, console: Console) -> Iterator[None]:
    """Hold `mutex` for the block; say so once when another process has it, and wait for it."""
    mutex.parent.mkdir(parents=True, exist_ok=True)
    with mutex.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            console.say(f"  waiting for another build or install of this stack (pid {handle.read().strip() or '?'})")
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
