"""`SHA256SUMS` of `dist/<stack>`: what `sha256sum --check` reads, under a first line that vouches for the lines below.

Without that line a changed byte in a digest could as well be a changed byte in the file of that digest. `sha256sum`
takes it for a comment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

FILE_NAME = "SHA256SUMS"
_SEAL = re.compile(r"# sha256 of the lines below: ([0-9a-f]{64})")
_LINE = re.compile(r"([0-9a-f]{64})  ([^/]+)")


@dataclass(frozen=True)
class Sums:
    """File name -> digest, as far as the lines can be read. `intact`: they are those that were written."""

    digests: dict[str, str]
    seal: str | None
    intact: bool
    text: str

    def mentions(self, name: str, digest: str = "") -> bool:
        """Whether a name, after a digest if one is given, stands somewhere in the file, in whatever line."""
        return f"{digest}  {name}" in self.text


def render(digests: Mapping[str, str]) -> str:
    """The file's text, for file name -> digest."""
    body = _body(digests)
    return f"# sha256 of the lines below: {_sha256(body)}\n{body}"


def seal(digests: Mapping[str, str]) -> str:
    """The digest in the first line of `render`."""
    return _sha256(_body(digests))


def read(content: bytes) -> Sums:
    """What the file says, and whether it is whole."""
    text = content.decode("utf-8", errors="replace")
    first = _SEAL.match(text)
    lines = [_LINE.fullmatch(line) for line in text.split("\n")]
    digests = {line[2]: line[1] for line in lines if line is not None}
    intact = first is not None and content == render(digests).encode() and first[1] == seal(digests)
    return Sums(digests, None if first is None else first[1], intact, text)


def _body(digests: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
