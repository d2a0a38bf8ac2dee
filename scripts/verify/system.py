"""The shared libraries of this machine, and whether they have the symbol versions that something needs.

As the loader decides it: by the versions that the library itself defines, not by the release of anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scripts.verify.archive import Problem
from scripts.verify.elf import Elf, UnreadableError, highest, read

_CONFIGURATION = Path("/etc/ld.so.conf")
_ALWAYS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def problems(member: str, elf: Elf) -> Iterator[Problem]:
    """The versions that a member needs and this machine's libraries do not have."""
    for library, needed in sorted(elf.versions.items()):
        path = find(library, elf.machine)
        lacking = frozenset() if path is None else needed - _defined(path)
        for family in sorted({version.rpartition("_")[0] for version in lacking}):
            most = highest(lacking, family) or ", ".join(sorted(lacking))
            have = highest(_defined(path), family) if path is not None else None
            yield Problem(member, f"needs more than this machine's {library} has", most, have or f"no {family}")


def find(library: str, machine: str) -> Path | None:
    """The file that the loader would take for a library's name, among those of this machine's kind."""
    places = (Path(folder) / library for folder in _folders())
    return next((place for place in places if place.is_file() and _machine(place) == machine), None)


@cache
def _folders() -> tuple[str, ...]:
    return (*_configured(_CONFIGURATION), *_ALWAYS)


def _configured(file: Path) -> tuple[str, ...]:
    """The folders of the loader's configuration, with the files that it includes."""
    if not file.is_file():
        return ()
    found: list[str] = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        words = re.split(r"[\s,:]+", line.partition("#")[0].strip())
        if words[0] == "include":
            for pattern in words[1:]:
                base = Path(pattern) if pattern.startswith("/") else file.parent / pattern
                for included in sorted(base.parent.glob(base.name)):
                    found += _configured(included)
        else:
            found += [word for word in words if word.startswith("/")]
    return tuple(found)


@cache
def _facts(path: Path) -> Elf | None:
    try:
        return read(path.read_bytes())
    except UnreadableError:
        # A linker script, such as libc.so, has the name of a library.
        return None


def _machine(path: Path) -> str | None:
    facts = _facts(path)
    return None if facts is None else facts.machine


def _defined(path: Path) -> frozenset[str]:
    facts = _facts(path)
    return frozenset() if facts is None else facts.defines
