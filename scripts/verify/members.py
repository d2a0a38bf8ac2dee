"""The members of a wheel, each read once: digest and size, what its machine code says, and whether it tells a path."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scripts.verify import archive, elf
from scripts.verify.archive import Problem
from scripts.verify.elf import Elf
from scripts.wheels import RecordLine

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises for a file that is not a whole, plain zip."""

_EXECUTABLE_BITS = 0o111
_METADATA = ("METADATA", "WHEEL", "RECORD")


@dataclass(frozen=True)
class Member:
    """`tells`: it has the build folder of this machine in its bytes."""

    line: RecordLine
    executable: bool
    code: Elf | None
    tells: bool
    problem: Problem | None


@dataclass(frozen=True)
class Members:
    """A wheel's files by name, the texts of its metadata by file name, and what is wrong with its form."""

    files: dict[str, Member]
    texts: dict[str, str]
    problems: list[Problem]


def read(path: Path, dist_info: str, build_folder: Path) -> Members:
    """Every member of a wheel. Raises one of `DAMAGED` when the archive cannot be opened at all."""
    needle = f"{build_folder}/".encode()
    with zipfile.ZipFile(path) as opened:
        infos = opened.infolist()
        if any(info.header_offset < 0 for info in infos):
            raise zipfile.BadZipFile("its directory is not where its end says")
        problems = list(archive.problems(path, opened))
        # zipfile may be read from several threads; hashing lets them run.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            members = list(pool.map(lambda info: _member(opened, info, needle), infos))
        files = {info.filename: member for info, member in zip(infos, members, strict=True)}
        texts = {
            name: opened.read(f"{dist_info}/{name}").decode("utf-8", errors="replace")
            for name in _METADATA
            if f"{dist_info}/{name}" in files and files[f"{dist_info}/{name}"].problem is None
        }
    return Members(files, texts, [*problems, *_told(files)])


def _told(files: dict[str, Member]) -> Iterator[Problem]:
    for name, member in files.items():
        if member.problem is not None:
            yield member.problem
        if member.tells:
            yield Problem(name, "has the folder of this machine's builds in it", "no path of the machine that built it")


def _member(opened: zipfile.ZipFile, info: zipfile.ZipInfo, needle: bytes) -> Member:
    executable = bool(info.external_attr >> 16 & _EXECUTABLE_BITS)
    try:
        data = opened.read(info)
    except DAMAGED as error:
        damage = Problem(info.filename, "cannot be read", found=str(error))
        return Member(RecordLine("", -1), executable, None, False, damage)
    line = RecordLine(hashlib.sha256(data).hexdigest(), len(data))
    code: Elf | None = None
    problem: Problem | None = None
    if data.startswith(elf.MAGIC):
        try:
            code = elf.read(data)
        except elf.UnreadableError as error:
            problem = Problem(info.filename, "is machine code that cannot be read", found=str(error))
    return Member(line, executable, code, needle in data, problem)
