"""A time limit on work that cannot be interrupted: when it runs out, the process says so and ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(what: str, seconds: float, expired: Callable[[str, float], None]) -> Iterator[None]:
    """Call `expired(what, seconds)` from another thread unless the block ends within `seconds`."""
    timer = threading.Timer(seconds, expired, args=(what, seconds))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
