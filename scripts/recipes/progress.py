"""What a person sees while something compiles: how far it is, at a bounded rate.

Reads the end of a step's log. On a terminal one line is written over and over; elsewhere a line now and then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scripts.console import Console

EVERY_S = {"terminal": 2.0, "plain": 15.0}
_TAIL_BYTES = 8192
_WIDTH = 100

# ninja's and make's counts, cargo's and CMake's words. What is last in the log is what is going on.
_TELLING = re.compile(
    r"^\s*(\[\d+/\d+\] .*|\[\s*\d+%\] .*|(Compiling|Downloading|Downloaded|Building|Finished|Checking) .*|-- .*)$"
)


def headline(text: str) -> str | None:
    """The last line of a log's end that says how far the build is."""
    lines = (line for line in reversed(text.splitlines()) if _TELLING.match(line))
    line = next(lines, None)
    return None if line is None else " ".join(line.split())[:_WIDTH]


@dataclass
class Progress:
    """Called about once a second; writes when there is something new and the last time is long enough ago."""

    console: Console
    log: Path
    clock: Callable[[], float] = time.monotonic
    _said: str | None = field(default=None, init=False)
    _at: float = field(default=float("-inf"), init=False)

    def __call__(self) -> None:
        terminal = self.console.stream.isatty()
        now = self.clock()
        if now - self._at < EVERY_S["terminal" if terminal else "plain"]:
            return
        line = headline(self._tail())
        if line is None or line == self._said:
            return
        self._said, self._at = line, now
        if terminal:
            # Back to the first column, and clear what is there.
            self.console.stream.write(f"\r\x1b[K    {line}")
            self.console.stream.flush()
        else:
            self.console.say(f"    {line}")

    def end(self) -> None:
        """Clear the line of a terminal, for whatever is said next."""
        if self._said is not None and self.console.stream.isatty():
            self.console.stream.write("\r\x1b[K")
            self.console.stream.flush()

    def _tail(self) -> str:
        with self.log.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - _TAIL_BYTES))
            return handle.read().decode("utf-8", errors="replace")
