"""An event that a signal handler may set.

`threading.Event` is none: its lock is not re-entrant, so a handler that sets it while the same thread is about to begin
or to end a wait for it blocks that thread for good. `queue.SimpleQueue.put` is documented as re-entrant.
"""

from __future__ import annotations

import queue
from contextlib import suppress


class Flag:
    """Set once, by anybody, and never cleared."""

    def __init__(self) -> None:
        self._raised = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        return self._raised

    def set(self) -> None:
        self._raised = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is set, after at most `timeout` seconds; without a limit, as soon as it is."""
        if not self._raised:
            with suppress(queue.Empty):
                self._wakes.get(timeout=timeout)
                self._wakes.put(None)  # for whoever waits as well
        return self._raised
