"""Reads a hash-locked requirements file, as `uv pip compile --generate-hashes` writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import PinError

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;]+)\s*(;[^\\]*)?(?P<hashes>( --hash=\S+)*)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAME_RUN = re.compile(r"[-_.]+")


@dataclass(frozen=True)
class Locked:
    """One locked distribution: its exact version and the SHA-256 of each file that may be it."""

    version: str
    hashes: frozenset[str]


def normalised(name: str) -> str:
    """A distribution's name in the one spelling that is compared (PEP 503)."""
    return _NAME_RUN.sub("-", name).lower()


def read(path: Path) -> dict[str, Locked]:
    """Normalised name -> pin. Raises `PinError` for a line without an exact version or without a hash."""
    if not path.is_file():
        raise PinError("there is no lock file", expected=str(path), found="no such file", hint="./noxw -s lock")
    joined = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, Locked] = {}
    for raw in joined.splitlines():
        line = " ".join(raw.split("#", 1)[0].split())
        if not line:
            continue
        match = _PIN.fullmatch(line)
        hashes = frozenset(_HASH.findall(line))
        if match is None or not hashes:
            raise PinError(
                "a lock file's line is not an exact, hashed pin",
                expected="name==version --hash=sha256:…",
                found=line[:120],
                where=str(path),
                hint="./noxw -s lock",
            )
        found[normalised(match["name"])] = Locked(match["version"], hashes)
    return found
