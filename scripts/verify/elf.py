"""What a file of machine code says of itself: its kind, its machine, the libraries and symbol versions that it needs.

Pure: bytes in, facts out. Imports nothing of the project.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

MAGIC = b"\x7fELF"
_POSITION_INDEPENDENT_PROGRAM = 0x08000000
# pyelftools trusts the numbers in a file, and fails as its reader's parts do.
_FAILURES = (
    ELFError,
    ConstructError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


@dataclass(frozen=True)
class Elf:
    """`versions`: library -> the versions of its symbols that are needed; `defines`: those that it has itself."""

    program: bool
    machine: str
    needed: tuple[str, ...]
    versions: dict[str, frozenset[str]]
    defines: frozenset[str]


class UnreadableError(ValueError):
    """A file that begins like machine code and is not."""


def read(data: bytes) -> Elf:
    """Raises `UnreadableError`, also for a file whose needs were stripped away with its section headers."""
    try:
        return _read(ELFFile(io.BytesIO(data)))
    except _FAILURES as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def order(version: str) -> tuple[int, ...]:
    """A key by which GLIBC_2.9 comes before GLIBC_2.28."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def highest(versions: Iterable[str], prefix: str) -> str | None:
    """The newest of the versions that begin with `prefix` and an underscore."""
    return max((each for each in versions if re.fullmatch(rf"{prefix}_[\d.]+", each)), key=order, default=None)


def _read(file: ELFFile) -> Elf:
    segments = {segment.header.p_type for segment in file.iter_segments()}
    sections = list(file.iter_sections())
    tags = [tag for section in sections if isinstance(section, DynamicSection) for tag in section.iter_tags()]
    if "PT_DYNAMIC" in segments and not tags:
        raise UnreadableError("no section headers, so that nobody can say what it needs")
    flags = sum(tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS_1")
    return Elf(
        program=file.header.e_type == "ET_EXEC"
        or "PT_INTERP" in segments
        or bool(flags & _POSITION_INDEPENDENT_PROGRAM),
        machine=_MACHINES.get(file.header.e_machine, file.header.e_machine),
        needed=tuple(str(tag.needed) for tag in tags if tag.entry.d_tag == "DT_NEEDED"),  # type: ignore[attr-defined]
        versions={
            str(library.name): frozenset(version.name for version in versions)
            for section in sections
            if isinstance(section, GNUVerNeedSection)
            for library, versions in section.iter_versions()
        },
        defines=frozenset(
            version.name
            for section in sections
            if isinstance(section, GNUVerDefSection)
            for _, names in section.iter_versions()
            for version in names
        ),
    )
