"""Wheels, byte for byte: reading members, writing them in a fixed order with a fixed look, and RECORD.

Members are stored, not deflated: a compressor's output differs between its versions, and with it the wheel's digest.
Modes, dates and order are fixed as well, so that equal contents are an equal file on every host.
"""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.digests import CHUNK_BYTES
from scripts.errors import BuildError

# The first moment that a zip file can express.
_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_REGULAR = 0o100000
_EXECUTABLE_BITS = 0o111


@dataclass(frozen=True)
class Member:
    """One file of a wheel to be written. `open` gives its bytes; `sha256` (hex), when known, is verified.

    `size`, in bytes, has to be about right from 2 GB on: such a file's entry is another one from its first byte.
    """

    name: str
    executable: bool
    open: Callable[[], IO[bytes]]
    sha256: str | None = None
    size: int = 0


@dataclass(frozen=True)
class RecordLine:
    """One line of RECORD: a file's digest in hex and its size in bytes."""

    sha256: str
    size: int


def members(archive: zipfile.ZipFile) -> Iterator[Member]:
    """The files of an open wheel."""
    for info in archive.infolist():
        if not info.is_dir():
            mode = info.external_attr >> 16
            content = functools.partial(archive.open, info)
            yield Member(info.filename, bool(mode & _EXECUTABLE_BITS), content, size=info.file_size)


def text_member(name: str, text: str) -> Member:
    """A small text file."""
    return Member(name, False, lambda: io.BytesIO(text.encode()))


def write(target: Path, contents: list[Member], dist_info: str) -> None:
    """Write a wheel of `contents` and its RECORD. `contents` has no RECORD; a repeated name is refused."""
    ordered = sorted(contents, key=lambda member: (member.name.startswith(f"{dist_info}/"), member.name))
    lines: dict[str, RecordLine] = {}
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_STORED) as archive:
        for member in ordered:
            if member.name in lines:
                raise BuildError("a wheel would contain the same file twice", found=member.name, where=str(target))
            lines[member.name] = _store(archive, member)
        _store(archive, text_member(f"{dist_info}/RECORD", record_text(lines, dist_info)))


def record_text(lines: dict[str, RecordLine], dist_info: str) -> str:
    """RECORD's text: its own line has neither digest nor size."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for name, line in lines.items():
        digest = base64.urlsafe_b64encode(bytes.fromhex(line.sha256)).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", line.size))
    writer.writerow((f"{dist_info}/RECORD", "", ""))
    return buffer.getvalue()


def parse_record(text: str) -> dict[str, RecordLine]:
    """Name -> digest and size, for every line that has them in SHA-256."""
    found: dict[str, RecordLine] = {}
    for name, digest, size in csv.reader(io.StringIO(text)):
        algorithm, _, value = digest.partition("=")
        if algorithm == "sha256":
            raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
            found[name] = RecordLine(raw.hex(), int(size))
    return found


def read_record(wheel: Path, distribution: str, version: str) -> dict[str, RecordLine]:
    """RECORD of a wheel file."""
    with zipfile.ZipFile(wheel) as archive:
        return parse_record(archive.read(f"{dist_info_name(distribution, version)}/RECORD").decode())


def dist_info_name(distribution: str, version: str) -> str:
    """The folder of a wheel's metadata."""
    return f"{distribution.replace('-', '_')}-{version}.dist-info"


def file_tag(wheel: Path) -> str:
    """The compatibility tag of a wheel file's name."""
    return "-".join(wheel.stem.split("-")[-3:])


def with_headers(text: str, headers: dict[str, str]) -> str:
    """A metadata file's text with some one-line headers replaced in place and everything else untouched."""
    head, blank, body = text.partition("\n\n")
    lines = head.splitlines()
    for name, value in headers.items():
        places = [number for number, line in enumerate(lines) if line.startswith(f"{name}: ")]
        if len(places) != 1:
            raise BuildError(f"a wheel's metadata has {len(places)} lines {name!r}", expected="one")
        lines[places[0]] = f"{name}: {value}"
    return "\n".join(lines) + (blank or "\n") + body


def _store(archive: zipfile.ZipFile, member: Member) -> RecordLine:
    info = zipfile.ZipInfo(member.name, date_time=_DATE)
    info.create_system = _UNIX
    info.compress_type = zipfile.ZIP_STORED
    info.file_size = member.size
    info.external_attr = (_REGULAR | (0o755 if member.executable else 0o644)) << 16
    digest, size = hashlib.sha256(), 0
    with member.open() as source, archive.open(info, "w") as sink:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            sink.write(chunk)
    if member.sha256 is not None and digest.hexdigest() != member.sha256:
        raise BuildError(
            f"{member.name} is not the pinned file", expected=f"sha256:{member.sha256}", found=digest.hexdigest()
        )
    return RecordLine(digest.hexdigest(), size)
