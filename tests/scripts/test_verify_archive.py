"""`verify` of one wheel: its form as a zip file, which every reader has to understand in the same way."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import verified
from verified_wheel import check, make, problems, rewritten

from scripts import wheels


def added(
    name: str, content: bytes = b"", mode: int = 0o100644
) -> Callable[[list[tuple[zipfile.ZipInfo, bytes]]], None]:
    def add(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        entries.append((info, content))

    return add


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside.py", "demo/../../outside.py", "demo//a.py", "a\\b.py", "C:/a"]
)
def test_a_name_that_leaves_its_folder(tmp_path: Path, name: str) -> None:
    assert (name, "is not a plain relative name") in problems(rewritten(make(tmp_path), added(name)))


def test_a_name_with_control_characters(tmp_path: Path) -> None:
    told = problems(rewritten(make(tmp_path), added("demo/a\nb.py")))
    assert ("demo/a\nb.py", "has control characters in its name") in told


def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    told = problems(rewritten(make(tmp_path), added("demo/__init__.py", b"TWO = 2\n")))
    assert ("demo/__init__.py", "is in the archive more than once") in told


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, 0o100666, 0o100600, stat.S_IFIFO | 0o644, 0])
def test_a_mode_that_no_wheel_of_ours_has(tmp_path: Path, mode: int) -> None:
    told = problems(rewritten(make(tmp_path), added("demo/odd", b"x", mode)))
    assert ("demo/odd", "has another mode") in told


def test_a_second_name_in_an_extra_field(tmp_path: Path) -> None:
    """Info-ZIP's Unicode path, for which zipfile has no eyes."""

    def add(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        other = b"demo/evil.py"
        entries[1][0].extra = struct.pack("<2HBI", 0x7075, 5 + len(other), 1, 0) + other

    assert ("demo/__init__.py", "has fields that few readers know") in problems(rewritten(make(tmp_path), add))


def local_header(wheel: Path, name: str) -> int:
    with zipfile.ZipFile(wheel) as archive:
        return archive.getinfo(name).header_offset


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        (6, "has one set of flags in the directory and another in its header"),
        (8, "has one compression in the directory and another in its header"),
        (10, "has one date in the directory and another in its header"),
        (13, "has one date in the directory and another in its header"),
        (14, "has one checksum in the directory and another in its header"),
        (18, "has one compressed size in the directory and another in its header"),
        (22, "has one size in the directory and another in its header"),
        (30, "has one name in the directory and another in its header"),
        (0, "has no header where the directory says"),
    ],
)
def test_a_header_that_differs_from_the_directory(tmp_path: Path, offset: int, problem: str) -> None:
    wheel = make(tmp_path)
    data = bytearray(wheel.read_bytes())
    data[local_header(wheel, "demo/__init__.py") + offset] ^= 2
    wheel.write_bytes(data)
    assert ("demo/__init__.py", problem) in problems(wheel)


def test_sizes_that_follow_the_bytes(tmp_path: Path) -> None:
    class Unseekable(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.content += data
            return len(data)

    sink = Unseekable()
    with zipfile.ZipFile(make(tmp_path)) as archive, zipfile.ZipFile(sink, "w") as copy:  # type: ignore[call-overload]
        for info in archive.infolist():
            copy.writestr(info, archive.read(info))
    wheel = tmp_path / f"demo-1.0-{verified.TAG}.whl"
    wheel.write_bytes(sink.content)
    assert ("demo/__init__.py", "has one place for its size in the directory and another in its header") in problems(
        wheel
    )


def test_bytes_that_belong_to_no_file(tmp_path: Path) -> None:
    wheel = make(tmp_path / "front")
    wheel.write_bytes(b"#!/bin/sh\n" + wheel.read_bytes())
    assert any(problem == "does not begin where the file before it ends" for _, problem in problems(wheel))
    wheel = make(tmp_path / "end")
    wheel.write_bytes(wheel.read_bytes() + b"more")
    assert ("demo.whl", "has a comment or other bytes after its directory") in problems(wheel)
    wheel = make(tmp_path / "middle")
    wheel.write_bytes(with_gap(wheel.read_bytes()))
    assert ("demo.whl", "has bytes that belong to no file") in problems(wheel)


def with_gap(data: bytes) -> bytes:
    """Some bytes before the directory, which the archive's end knows of."""
    end = data.rindex(b"PK\x05\x06")
    (offset,) = struct.unpack_from("<I", data, end + 16)
    return data[:offset] + b"hidden" + data[offset : end + 16] + struct.pack("<I", offset + 6) + data[end + 20 :]


def test_a_comment_is_no_part_of_a_wheel(tmp_path: Path) -> None:
    wheel = make(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.comment = b"hello"
    assert problems(wheel) == {("demo.whl", "has a comment or other bytes after its directory")}


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file at all" * 20])
def test_a_file_that_is_no_zip(tmp_path: Path, content: bytes) -> None:
    wheel = make(tmp_path)
    wheel.write_bytes(content)
    assert problems(wheel) == {("demo.whl", "is not a whole zip file")}


def test_a_wheel_that_was_cut_or_changed_anywhere_is_told_and_nothing_breaks(tmp_path: Path) -> None:
    """`verify` looks into whole artifacts only; this is for wheels that were made wrong."""
    wheel = make(tmp_path)
    data, contents = wheel.read_bytes(), unpacked(wheel)
    for position in range(0, len(data), 11):
        wheel.write_bytes(data[:position])
        assert check(wheel), position
        other = bytearray(data)
        other[position] ^= 1 << position % 8
        wheel.write_bytes(other)
        # Dates and the like are told as well, and change nothing that anybody unpacks.
        assert check(wheel) or unpacked(wheel) == contents, position


def unpacked(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_writer_of_wheels_and_the_reader_agree(tmp_path: Path) -> None:
    many = {f"demo/{number}.py": bytes([number]) * number * 50 for number in range(100)}
    wheel = make(tmp_path, many)
    assert check(wheel) == []
    assert len(wheels.read_record(wheel, "demo", "1.0")) == 102
