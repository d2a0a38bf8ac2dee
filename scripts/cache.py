"""What was built, and whether it still is what it was: `.cache/state/<stack>.json`.

A product's artifacts are reused when the digest of everything that went into it (its key) is the recorded one and each
file still has the recorded digest. Hashing half a gigabyte takes seconds, so a file whose size, inode, modification
time *and change time* are those recorded right after it was hashed counts as unchanged: no program can set the change
time, so only a write under a turned-back system clock, or to the raw disk, would pass. `--force`, `install` and
`verify` read every byte.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from scripts.digests import file_sha256
from scripts.manifest import Artifact, SourceFile
from scripts.publish import publish_text


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fingerprint(_Strict):
    """What the file system says about a file's last change (times in nanoseconds)."""

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


class Entry(_Strict):
    """One built file."""

    artifact: Artifact
    fingerprint: Fingerprint


class _Record(_Strict):
    products: dict[str, list[Entry]]


@dataclass(frozen=True)
class Made:
    """A file that was just put into `dist/<stack>`, and what it was made from."""

    name: str
    version: str
    file: str
    made_from: list[SourceFile] = field(default_factory=list)
    kind: Literal["wheel", "binary"] = "wheel"


class Cache:
    """Key of a product -> its artifacts in `dist`."""

    def __init__(self, path: Path, dist: Path, products: dict[str, list[Entry]]) -> None:
        self._path = path
        self._dist = dist
        self._products = products

    @classmethod
    def load(cls, path: Path, dist: Path) -> Cache:
        """The recorded state; an empty one when there is none that can be read."""
        try:
            return cls(path, dist, _Record.model_validate_json(path.read_text(encoding="utf-8")).products)
        except (FileNotFoundError, UnicodeDecodeError, ValidationError):
            return cls(path, dist, {})

    def save(self) -> None:
        record = _Record(products=self._products).model_dump()
        publish_text(self._path, json.dumps(record, indent=1, sort_keys=True) + "\n")

    def reusable(self, key: str) -> list[Artifact] | None:
        """The artifacts that were made from `key`, if every one of them is unchanged."""
        entries = self._products.get(key)
        if not entries or not all(self._unchanged(entry) for entry in entries):
            return None
        return [entry.artifact for entry in entries]

    def record(self, key: str, made: list[Made]) -> list[Artifact]:
        """Hash freshly built files and remember them. A file that two products made is the later one's."""
        entries = [self._entry(each) for each in made]
        taken = {each.file for each in made}
        self._products = {
            other: kept
            for other, of_other in self._products.items()
            if (kept := [entry for entry in of_other if entry.artifact.file not in taken]) == of_other
        }
        self._products[key] = entries
        return [entry.artifact for entry in entries]

    def retain(self, keys: set[str]) -> list[str]:
        """Forget all other products; the files that no product that is left has made."""
        kept = {key: entries for key, entries in self._products.items() if key in keys}
        former = self._files(self._products) - self._files(kept)
        self._products = kept
        return sorted(former)

    @staticmethod
    def _files(products: dict[str, list[Entry]]) -> set[str]:
        return {entry.artifact.file for entries in products.values() for entry in entries}

    def _entry(self, made: Made) -> Entry:
        path = self._dist / made.file
        digest, fingerprint = file_sha256(path), Fingerprint.of(path)
        artifact = Artifact(
            name=made.name,
            version=made.version,
            kind=made.kind,
            file=made.file,
            sha256=digest,
            size=fingerprint.size,
            made_from=made.made_from,
        )
        return Entry(artifact=artifact, fingerprint=fingerprint)

    def _unchanged(self, entry: Entry) -> bool:
        path = self._dist / entry.artifact.file
        if not path.is_file():
            return False
        return Fingerprint.of(path) == entry.fingerprint or file_sha256(path) == entry.artifact.sha256
