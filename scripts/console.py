"""What a person sees while the build plane works: one line per step, on stderr, with its duration."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO


@dataclass
class Console:
    """Writes progress to `stream`. stdout stays free for `--json`."""

    stream: TextIO
    started: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step when it begins, and say how long it took when it ends well."""
        began = time.monotonic()
        self.say(f"  {title} ...")
        yield
        self.say(f"  {title}: done in {time.monotonic() - began:.1f} s")

    def cached(self, title: str) -> None:
        self.say(f"  {title}: cached")

    def elapsed_s(self) -> float:
        """Seconds since this console was made, which is when the command began."""
        return time.monotonic() - self.started
