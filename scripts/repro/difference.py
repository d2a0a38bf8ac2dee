"""Where two streams of bytes part, and what that place looks like: a path, a date, or neither. Pure."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import IO

_CHUNK_BYTES = 1 << 20
_AROUND = 96
_SHOWN = 60
_PATH = re.compile(rb"(?:/[\w.+@~-]+){2,}/?")
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = re.compile(
    rb"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?|\d\d:\d\d:\d\d|"
    + _MONTH
    + rb" [ \d]\d \d{4}|\d{4}/\d\d/\d\d"
)
_RECENT_S = 2 * 86400
"""A clock that was read by one of the builds is no further from now, in any time zone."""


@dataclass(frozen=True)
class Difference:
    """The first byte that differs. `one` and `other` are the bytes around it; `at` is its place in both."""

    offset: int
    one: bytes
    other: bytes
    at: int

    def looks_like(self, now: float) -> str | None:
        """`a date` or `a path`, when the place does; a binary number is a date when it is about `now`, in seconds."""
        for what, pattern in (("a date", _DATE), ("a path", _PATH)):
            if all(_covers(pattern, text, self.at) for text in (self.one, self.other)):
                return what
        return "a date" if self._clock(now) else None

    def described(self, now: float) -> str:
        looks = self.looks_like(now)
        seen = f"{_shown(self.one, self.at)} against {_shown(self.other, self.at)}"
        return f"first at byte {self.offset}: {seen}" + (f", which looks like {looks}" if looks else "")

    def _clock(self, now: float) -> bool:
        """Whether a binary number of seconds covers the place in both."""
        for size, kind in ((4, "<I"), (4, ">I"), (8, "<q"), (8, ">q")):
            for start in range(max(0, self.at - size + 1), self.at + 1):
                pieces = [text[start : start + size] for text in (self.one, self.other)]
                if all(len(piece) == size and abs(struct.unpack(kind, piece)[0] - now) < _RECENT_S for piece in pieces):
                    return True
        return False


def first_difference(one: IO[bytes], other: IO[bytes]) -> Difference | None:
    """None when both are the same to the end."""
    offset, tail = 0, b""
    while True:
        pieces = [stream.read(_CHUNK_BYTES) for stream in (one, other)]
        if pieces[0] != pieces[1]:
            break
        if not pieces[0]:
            return None
        offset += len(pieces[0])
        tail = pieces[0][-_AROUND:]
    # What follows the place may be in the next piece.
    pieces = [piece + stream.read(_AROUND) for piece, stream in zip(pieces, (one, other), strict=True)]
    place = _parting(*pieces)
    begin = max(0, place - _AROUND)
    before = tail[len(tail) - (_AROUND - place) :] if place < _AROUND and tail else b""
    around = [before + piece[begin : place + _AROUND] for piece in pieces]
    return Difference(offset + place, around[0], around[1], len(before) + place - begin)


def _parting(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _covers(pattern: re.Pattern[bytes], text: bytes, at: int) -> bool:
    return any(match.start() <= at <= match.end() for match in pattern.finditer(text))


def _shown(text: bytes, at: int) -> str:
    """The printable run around the place, or the byte itself; the end of the file is said."""
    if at >= len(text):
        return "the end of the file"
    start = at
    while start > 0 and 0x20 <= text[start - 1] < 0x7F and at - start < _SHOWN // 2:
        start -= 1
    end = at
    while end < len(text) and 0x20 <= text[end] < 0x7F and end - start < _SHOWN:
        end += 1
    run = text[start:end] if end > at else text[at : at + 8]
    return repr(run.decode("latin-1")) if end > at else f"bytes {run.hex(' ')}"
