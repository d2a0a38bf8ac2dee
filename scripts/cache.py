"""What was built, and whether it still is what it was: `dist/<stack>/cache.json`.

An artifact is reused when the digest of everything that went into it (its key) is the recorded one and the file still
has the recorded digest. Hashing half a gigabyte takes seconds, so a file whose size, inode, modification time *and
change time* are those recorded right after it was hashed counts as unchanged: no program can set the change time, so
only a write under a turned-back system clock, or to the raw disk, would pass. `--force` and `install` read every byte.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from scripts.digests import file_sha256
from scripts.publish import publish_text

FILE_NAME = "cache.json"


class Fingerprint(BaseModel):
    """What the file system says about a file's last change (times in nanoseconds)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    inode: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        status = path.stat()
        return cls(
            size=status.st_size, inode=status.st_ino, modified_ns=status.st_mtime_ns, changed_ns=status.st_ctime_ns
        )


class Entry(BaseModel):
    """One built file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    sha256: str
    fingerprint: Fingerprint


class Cache(BaseModel):
    """File name in `dist/<stack>` -> what is known about it."""

    model_config = ConfigDict(extra="forbid")

    entries: dict[str, Entry] = {}

    @classmethod
    def load(cls, dist: Path) -> Cache:
        """The recorded state; an empty one when there is none that can be read."""
        try:
            return cls.model_validate_json((dist / FILE_NAME).read_text(encoding="utf-8"))
        except (FileNotFoundError, UnicodeDecodeError, ValidationError):
            return cls()

    def save(self, dist: Path) -> None:
        publish_text(dist / FILE_NAME, json.dumps(self.model_dump(), indent=1, sort_keys=True) + "\n")

    def reusable(self, path: Path, key: str) -> str | None:
        """The digest of `path` if it was built from `key` and is unchanged, else None."""
        entry = self.entries.get(path.name)
        if entry is None or entry.key != key or not path.is_file():
            return None
        if Fingerprint.of(path) == entry.fingerprint:
            return entry.sha256
        if file_sha256(path) != entry.sha256:
            return None
        self.entries[path.name] = entry.model_copy(update={"fingerprint": Fingerprint.of(path)})
        return entry.sha256

    def record(self, path: Path, key: str) -> str:
        """Hash a freshly built file and remember it."""
        digest = file_sha256(path)
        self.entries[path.name] = Entry(key=key, sha256=digest, fingerprint=Fingerprint.of(path))
        return digest
