"""Standard output and standard error as they are in life: closed, full, or gone with the terminal while a run goes on.

What people see of a run must not decide how it ends, so that nothing here raises.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress
from typing import TextIO, cast

from harness.plaintext import plain


class LastingStream(io.TextIOBase):
    """Writes to `stream` until that fails, and nowhere from then on; `broken` is why. None is one that was closed."""

    def __init__(self, stream: TextIO | None) -> None:
        self.broken: OSError | ValueError | None = None if stream is not None else ValueError("it is closed")
        self._stream = stream if stream is not None else io.StringIO()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return self.broken is None and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.broken is None:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        if self.broken is None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        """What the stream still holds would fail again when Python flushes it at its end, with exit status 120."""
        self.broken = error
        with suppress(OSError, ValueError):
            number, null = self._stream.fileno(), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


def lasting(stream: TextIO | None) -> TextIO:
    """`stream`, for good; see `LastingStream`."""
    return cast(TextIO, LastingStream(stream))


def say(text: str) -> None:
    """One remark on standard error."""
    stream = LastingStream(sys.stderr)
    stream.write(f"smokestack: {plain(text)}\n")
    stream.flush()


def print_document(document: object) -> None:
    """One JSON document on standard output; if that is impossible, standard error says so."""
    stream = LastingStream(sys.stdout)
    stream.write(json.dumps(document, indent=2) + "\n")
    stream.flush()
    if stream.broken is not None:
        say(f"the JSON document could not be written to standard output: {stream.broken}")
