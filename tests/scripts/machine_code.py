"""Files of machine code as small as they can be: a program that runs, and a library that needs what a test says."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_BASE = 0x400000
_HEADER, _SEGMENT = 64, 56
_X86_64, _AARCH64 = 62, 183
_NULL, _STRINGS, _DYNAMIC, _VERNEED = 0, 3, 6, 0x6FFFFFFE
_DT_NULL, _DT_NEEDED = 0, 1
_PT_DYNAMIC = 2


def program(text: str) -> bytes:
    """A static x86-64 executable that writes `text` and ends with 0."""
    message = text.encode()
    write = b"\xb8\x01\x00\x00\x00\xbf\x01\x00\x00\x00\x48\x8d\x35%s\xba%s\x0f\x05"
    leave = b"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05"
    # From the end of the instruction that takes the address: 5 bytes of length, 2 of the call, then `leave`.
    code = write % (struct.pack("<i", 7 + len(leave)), struct.pack("<i", len(message))) + leave + message
    size = _HEADER + _SEGMENT + len(code)
    segment = struct.pack("<2I6Q", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return _header(2, _X86_64, entry=_BASE + _HEADER + _SEGMENT, segments=1) + segment + code


def library(needs: Mapping[str, Sequence[str]], *, machine: int = _X86_64) -> bytes:
    """A shared library without code; `needs`: library -> versions of its symbols."""
    strings = _Strings()
    dynamic = b"".join(struct.pack("<2Q", _DT_NEEDED, strings.place(name)) for name in needs)
    dynamic += struct.pack("<2Q", _DT_NULL, 0)
    versions = _verneed(needs, strings)
    names = _Strings()
    parts = [
        (names.place(".dynstr"), _STRINGS, bytes(strings.content), 0, 0, 0),
        (names.place(".dynamic"), _DYNAMIC, dynamic, 1, 0, 16),
        (names.place(".gnu.version_r"), _VERNEED, versions, 1, len([each for each in needs.values() if each]), 0),
    ]
    parts.append((names.place(".shstrtab"), _STRINGS, b"", 0, 0, 0))
    parts[-1] = (*parts[-1][:2], bytes(names.content), 0, 0, 0)
    body, sections = b"", struct.pack("<2I4Q2I2Q", *(0,) * 10)
    segment = b""
    for name, kind, content, link, info, entry_size in parts:
        offset = _HEADER + _SEGMENT + len(body)
        sections += struct.pack("<2I4Q2I2Q", name, kind, 0, 0, offset, len(content), link, info, 1, entry_size)
        if kind == _DYNAMIC:
            segment = struct.pack("<2I6Q", _PT_DYNAMIC, 4, offset, 0, 0, len(content), len(content), 8)
        body += content
    place = _HEADER + _SEGMENT + len(body)
    return _header(3, machine, segments=1, sections=len(parts) + 1, section_place=place) + segment + body + sections


def for_aarch64(needs: Mapping[str, Sequence[str]]) -> bytes:
    """The same for another machine."""
    return library(needs, machine=_AARCH64)


class _Strings:
    def __init__(self) -> None:
        self.content = bytearray(b"\0")

    def place(self, text: str) -> int:
        position = len(self.content)
        self.content += text.encode() + b"\0"
        return position


def _verneed(needs: Mapping[str, Sequence[str]], strings: _Strings) -> bytes:
    made = b""
    wanted = [(name, versions) for name, versions in needs.items() if versions]
    for number, (name, versions) in enumerate(wanted):
        length = 16 * (1 + len(versions))
        following = 0 if number == len(wanted) - 1 else length
        made += struct.pack("<2H3I", 1, len(versions), strings.place(name), 16, following)
        for index, version in enumerate(versions):
            more = 0 if index == len(versions) - 1 else 16
            made += struct.pack("<I2H2I", 0, 0, 2 + index, strings.place(version), more)
    return made


def _header(
    kind: int, machine: int, *, entry: int = 0, segments: int = 0, sections: int = 0, section_place: int = 0
) -> bytes:
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    return identity + struct.pack(
        "<2HI3QI6H",
        kind,
        machine,
        1,
        entry,
        _HEADER if segments else 0,
        section_place,
        0,
        _HEADER,
        _SEGMENT if segments else 0,
        segments,
        64 if sections else 0,
        sections,
        max(0, sections - 1),
    )
