"""Paths of the machine and folder that something was built in: taken out of texts, looked for in bytes.

A path that stays in an artifact makes it another one in every folder. Pure but for one look at each prefix, whose real
path counts as well: compilers resolve links. Imports the errors of the project and nothing else of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import IO
from urllib.parse import quote

from scripts.errors import UsageError

_CHUNK_BYTES = 1 << 20
# What continues a name: /a/b is no prefix of /a/bc, nor of /a/b%20c. A separator may be written %2F.
_NAME_GOES_ON = r"(?![\w.~+-]|%(?!2[Ff]))"
_NAME_BEGINS = r"(?:(?<=%[0-9A-Fa-f]{2})|(?<![\w.~-]))"


@dataclass(frozen=True)
class BuildPaths:
    """Absolute folders, each in the spellings that a build may leave behind."""

    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, prefixes: Iterable[str]) -> BuildPaths:
        """Raises `UsageError` for a relative path, and for the root, which is a prefix of everything."""
        found: set[str] = set()
        for prefix in prefixes:
            clean = os.path.normpath(prefix)
            if not os.path.isabs(clean) or clean.strip("/") == "":  # noqa: PTH117 - a string, not a file
                raise UsageError(
                    "a build path must be a folder below the root",
                    expected="/some/folder",
                    found=prefix,
                    hint="give its whole path, from the root on",
                )
            found |= {clean, os.path.realpath(clean)}
        return cls(tuple(sorted(found - {"/"}, key=lambda path: (-len(path), path))))

    def stripped(self, text: str) -> str:
        """`text` with every prefix taken out, so that `file:///build/lib` is `file:///lib`."""
        if not self.prefixes:
            return text
        # Once may not be enough: what is left may begin with a prefix again, and a second call must change nothing.
        while (shorter := self._in_text.sub("", text)) != text:
            text = shorter or "/"
        return text

    def found_in(self, stream: IO[bytes]) -> frozenset[str]:
        """The prefixes that occur in the stream's bytes, read in pieces."""
        found: set[str] = set()
        if not self.prefixes:
            return frozenset()
        # Escaped, each byte is three; one more follows, by which a match is judged.
        longest = 3 * max(len(prefix.encode()) for prefix in self.prefixes) + 1
        buffer = b""
        while chunk := stream.read(_CHUNK_BYTES):
            buffer += chunk
            # A match that ends with the piece is judged with the next one: its name may go on there.
            found |= {self._named(match) for match in self._in_bytes.finditer(buffer) if match.end() < len(buffer)}
            buffer = buffer[-longest:]
        return frozenset(found | {self._named(match) for match in self._in_bytes.finditer(buffer)})

    @cached_property
    def _in_text(self) -> re.Pattern[str]:
        return re.compile(f"{_NAME_BEGINS}(?:{self._choice}){_NAME_GOES_ON}")

    @cached_property
    def _in_bytes(self) -> re.Pattern[bytes]:
        return re.compile(f"(?:{self._choice}){_NAME_GOES_ON}".encode())

    @property
    def _choice(self) -> str:
        """Longest first: a folder's own prefix before that of its parent."""
        return "|".join(f"(?P<p{number}>{_spelled(prefix)})" for number, prefix in enumerate(self.prefixes))

    def _named(self, match: re.Match[bytes]) -> str:
        return self.prefixes[int((match.lastgroup or "").removeprefix("p"))]


def _spelled(path: str) -> str:
    """A pattern: as it is, and as a URL has it, with and without its separators escaped."""
    parts = [dict.fromkeys([re.escape(part), re.escape(quote(part, safe=""))]) for part in path[1:].split("/")]
    return "".join(f"(?:/|%2[Ff])(?:{'|'.join(spellings)})" for spellings in parts)
