"""A wheel as a zip file: whether everything that reads it must see the same files in it.

The central directory at the end and the header before each file tell the same things twice, and readers differ in
which they believe. `scripts.strict_wheel` refuses such a file before it is written again; here everything that is wrong
is told.
"""

from __future__ import annotations

import stat
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

_LOCAL = struct.Struct("<4s5H3I2H")
_END_BYTES = 22
_UTF8_NAME = 0x800
_SIZES_FOLLOW = 0x8
_IN_EXTRA = 0xFFFFFFFF
_ZIP64 = 1
_MODES = (stat.S_IFREG | 0o644, stat.S_IFREG | 0o755)


class Problem(NamedTuple):
    """Something wrong with a member, or with the archive when `member` is empty."""

    member: str
    what: str
    expected: str | None = None
    found: str | None = None


def problems(path: Path, archive: zipfile.ZipFile) -> Iterator[Problem]:
    """Everything that is wrong with the archive's form; the members' bytes are not read."""
    infos = archive.infolist()
    yield from _names(infos)
    for info in infos:
        mode = info.external_attr >> 16
        if mode not in _MODES:
            expected = " or ".join(stat.filemode(each) for each in _MODES)
            yield Problem(info.filename, "has another mode", expected, stat.filemode(mode))
    with path.open("rb") as handle:
        yield from _headers(handle, archive)
        yield from _end(handle)


def _names(infos: list[zipfile.ZipInfo]) -> Iterator[Problem]:
    for name, times in Counter(info.filename for info in infos).items():
        if times > 1:
            yield Problem(name, "is in the archive more than once", "once", f"{times} times")
    for info in infos:
        # zipfile cuts a name at its first zero byte.
        name = info.orig_filename
        parts = name.split("/")
        if name.startswith("/") or name[1:2] == ":" or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
            yield Problem(name, "is not a plain relative name")
        elif not name.isprintable():
            yield Problem(name, "has control characters in its name", found=repr(name))


def _headers(handle: IO[bytes], archive: zipfile.ZipFile) -> Iterator[Problem]:
    """Each file's own header against the directory, and no byte between one file and the next."""
    position = 0
    for info in sorted(archive.infolist(), key=lambda each: each.header_offset):
        if info.header_offset != position:
            yield Problem(
                info.filename, "does not begin where the file before it ends", str(position), str(info.header_offset)
            )
        handle.seek(info.header_offset)
        raw = handle.read(_LOCAL.size)
        if len(raw) != _LOCAL.size or not raw.startswith(b"PK\x03\x04"):
            yield Problem(info.filename, "has no header where the directory says")
            continue
        *_, name_length, extra_length = _LOCAL.unpack(raw)
        name, extra = handle.read(name_length), handle.read(extra_length)
        if (strange := _kinds(extra) | _kinds(info.extra)) - {_ZIP64}:
            # One of them is another name, which some readers prefer.
            yield Problem(info.filename, "has fields that few readers know", "none", f"kinds {sorted(strange)}")
        for field, directory, header in _told_twice(info, raw, name, extra):
            if directory != header:
                yield Problem(
                    info.filename,
                    f"has one {field} in the directory and another in its header",
                    str(directory),
                    str(header),
                )
        position = info.header_offset + _LOCAL.size + name_length + extra_length + info.compress_size
    if position != archive.start_dir:
        yield Problem("", "has bytes that belong to no file", str(position), str(archive.start_dir))


def _told_twice(info: zipfile.ZipInfo, raw: bytes, name: bytes, extra: bytes) -> Iterator[tuple[str, object, object]]:
    _, _, flags, method, time, date, crc, compressed, size, _, _ = _LOCAL.unpack(raw)
    encoding = "utf-8" if info.flag_bits & _UTF8_NAME else "cp437"
    yield "name", info.orig_filename.encode(encoding, errors="replace"), name
    yield "set of flags", info.flag_bits, flags
    yield "compression", info.compress_type, method
    yield "date", info.date_time, _date(date, time)
    if flags & _SIZES_FOLLOW:
        yield "place for its size", "before its bytes", "after them"
        return
    large = iter(_zip64(extra))
    yield "checksum", info.CRC, crc
    yield "size", info.file_size, next(large, size) if size == _IN_EXTRA else size
    yield "compressed size", info.compress_size, next(large, compressed) if compressed == _IN_EXTRA else compressed


def _date(date: int, time: int) -> tuple[int, ...]:
    """Year to second, as a zip file packs them."""
    day = ((date >> 9) + 1980, date >> 5 & 15, date & 31)
    return (*day, time >> 11, time >> 5 & 63, (time & 31) * 2)


def _zip64(extra: bytes) -> tuple[int, ...]:
    values = dict(_fields(extra)).get(_ZIP64, b"")
    return struct.unpack(f"<{len(values) // 8}Q", values[: len(values) // 8 * 8])


def _kinds(extra: bytes) -> set[int]:
    return {kind for kind, _ in _fields(extra)}


def _fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        yield kind, extra[4 : 4 + length]
        extra = extra[4 + length :]


def _end(handle: IO[bytes]) -> Iterator[Problem]:
    """Nothing after the directory; that nothing lies before its end is zipfile's own condition for reading it."""
    length = handle.seek(0, 2)
    handle.seek(max(0, length - _END_BYTES))
    if not handle.read().startswith(b"PK\x05\x06"):
        yield Problem("", "has a comment or other bytes after its directory", "nothing")
