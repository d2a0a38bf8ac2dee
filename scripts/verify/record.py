"""RECORD, strictly: every file once, with the SHA-256 and the size that it has, and nothing else. Pure."""

from __future__ import annotations

import base64
import binascii
import csv
import io
from collections.abc import Iterator, Mapping

from scripts.verify.archive import Problem
from scripts.wheels import RecordLine


def problems(text: str, own: str, files: Mapping[str, RecordLine]) -> Iterator[Problem]:
    """What is wrong with a RECORD whose own name is `own`; `files` are the archive's other members as they are."""
    seen: set[str] = set()
    for row in csv.reader(io.StringIO(text)):
        if len(row) != 3:
            yield Problem(own, "has a line that is not a name, a digest and a size", found=",".join(row)[:120])
            continue
        name, digest, size = row
        if name in seen:
            yield Problem(name, "is in RECORD more than once", "once")
        seen.add(name)
        if name == own:
            if digest or size:
                yield Problem(own, "tells a digest of itself", "none", f"{digest},{size}")
        elif name not in files:
            yield Problem(name, "is in RECORD and not in the archive")
        else:
            yield from _line(name, digest, size, files[name])
    for name in sorted({own, *files} - seen):
        yield Problem(name, "is in the archive and not in RECORD")


def _line(name: str, digest: str, size: str, file: RecordLine) -> Iterator[Problem]:
    told, actual = _sha256(digest), f"sha256 {file.sha256}"
    if told != actual:
        yield Problem(name, "is not what RECORD says", told, actual)
    if size != str(file.size):
        yield Problem(name, "has another size than RECORD says", size or "no size", str(file.size))


def _sha256(digest: str) -> str:
    algorithm, _, value = digest.partition("=")
    if algorithm != "sha256":
        return f"not a SHA-256: {digest!r}"
    try:
        return f"sha256 {base64.urlsafe_b64decode(value + '=' * (-len(value) % 4)).hex()}"
    except binascii.Error:
        return f"not a SHA-256: {digest!r}"
