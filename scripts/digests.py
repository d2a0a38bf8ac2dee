"""SHA-256 of files, folders and plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

CHUNK_BYTES = 1 << 20
BYTECODE = frozenset({"__pycache__"})


def file_sha256(path: Path) -> str:
    """The hex digest of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def source_files(folder: Path) -> list[Path]:
    """All files below `folder` that a person wrote, in a fixed order: no bytecode, nothing hidden."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part in BYTECODE or part.startswith(".") for part in path.relative_to(folder).parts)
    )


def files_sha256(base: Path, files: Iterable[Path]) -> str:
    """One digest over names (relative to `base`) and contents."""
    return json_sha256({path.relative_to(base).as_posix(): file_sha256(path) for path in files})


def json_sha256(value: object) -> str:
    """The digest of plain data, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
