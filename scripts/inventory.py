"""What an environment consists of, entry by entry: written into it as the last act of an install, read by `verify`.

Every file, link and folder is in it but the inventory itself, whose field `seal` vouches for all entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from scripts.digests import CHUNK_BYTES, json_sha256
from scripts.publish import publish_text

FILE_NAME = "smokestack-inventory.json"

# Many more shares than threads, as one share may have all the large files.
_SHARES_PER_THREAD = 32
_SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')


class Entry(NamedTuple):
    """A file with the digest of its bytes, a link with its target, or a folder; `mode` are the permission bits.

    "other" is what an environment must not have: a device, a socket, or a file that cannot be read.
    """

    kind: Literal["file", "link", "folder", "other"]
    mode: int
    content: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.mode:04o} {self.content}".rstrip()


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    seal: str
    entries: dict[str, str]

    def text(self) -> str:
        # All ASCII: a file's name need not be UTF-8.
        return json.dumps(self.model_dump(by_alias=True), indent=0, ensure_ascii=True) + "\n"


@dataclass(frozen=True)
class Recorded:
    """The inventory that lies in an environment: path -> entry in its written form; None when no line can be read.

    `intact`: it is what was written, byte for byte. `seal` is of what was written, unless that very field was changed.
    """

    seal: str | None
    entries: dict[str, str] | None
    intact: bool


def take(root: Path) -> dict[str, Entry]:
    """Path relative to `root` -> entry, for everything below it but an inventory. Reads every byte; follows no link."""
    found: dict[str, Entry] = {}
    files: list[tuple[str, int]] = []
    _walk(str(root), len(str(root)) + 1, found, files)
    threads = os.cpu_count() or 1
    shares = [files[first :: threads * _SHARES_PER_THREAD] for first in range(threads * _SHARES_PER_THREAD)]
    with ThreadPoolExecutor(threads) as pool:
        for digests in pool.map(lambda share: _read(root, share), shares):
            found.update(digests)
    found.pop(FILE_NAME, None)
    return found


def entry(path: Path) -> Entry:
    """One entry, looked at now."""
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode):
        return _file_entry(str(path), stat.S_IMODE(mode))
    return _entry_without_bytes(str(path), mode)


def seal(entries: Mapping[str, Entry | str]) -> str:
    """One digest over all of them."""
    return json_sha256({path: str(each) for path, each in entries.items()})


def write(root: Path, entries: Mapping[str, Entry]) -> None:
    """Leave `entries` in the environment `root`."""
    written = {path: str(each) for path, each in sorted(entries.items())}
    publish_text(root / FILE_NAME, _Document(seal=seal(written), entries=written).text())


def load(root: Path) -> Recorded | None:
    """The inventory of an environment; None when there is none."""
    path = root / FILE_NAME
    if path.is_symlink() or not path.is_file():
        return None
    content = path.read_bytes()
    try:
        document = _Document.model_validate(json.loads(content))
    except ValueError:
        match = _SEAL.search(content)
        return Recorded(None if match is None else match[1].decode(), _legible(content) or None, intact=False)
    intact = document.seal == seal(document.entries) and document.text().encode() == content
    return Recorded(document.seal, document.entries, intact)


def _legible(content: bytes) -> dict[str, str]:
    """What is left of a document that is no JSON any more: it has a line for each entry."""
    found: dict[str, object] = {}
    for line in content.splitlines():
        try:
            found |= json.loads(b"{%s}" % line.strip(b","))
        except ValueError:
            continue
    return {path: each for path, each in found.items() if isinstance(each, str) and path != "seal"}


def _walk(folder: str, cut: int, found: dict[str, Entry], files: list[tuple[str, int]]) -> None:
    with os.scandir(folder) as children:
        for child in children:
            mode = child.stat(follow_symlinks=False).st_mode
            name = child.path[cut:]
            if stat.S_ISREG(mode):
                files.append((name, stat.S_IMODE(mode)))
                continue
            found[name] = _entry_without_bytes(child.path, mode)
            if stat.S_ISDIR(mode):
                _walk(child.path, cut, found, files)


def _entry_without_bytes(path: str, mode: int) -> Entry:
    if stat.S_ISLNK(mode):
        # A link has no permissions of its own.
        return Entry("link", 0, os.readlink(path))  # noqa: PTH115
    return Entry("folder" if stat.S_ISDIR(mode) else "other", stat.S_IMODE(mode))


def _read(root: Path, share: Iterable[tuple[str, int]]) -> dict[str, Entry]:
    return {name: _file_entry(f"{root}/{name}", mode) for name, mode in share}


def _file_entry(path: str, mode: int) -> Entry:
    try:
        return Entry("file", mode, _sha256(path))
    except OSError as error:
        return Entry("other", mode, error.strerror or str(error))


def _sha256(path: str) -> str:
    """As `digests.file_sha256`, which takes three times as long for files as small as most of these are."""
    digest = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY)
    try:
        while chunk := os.read(handle, CHUNK_BYTES):
            digest.update(chunk)
    finally:
        os.close(handle)
    return digest.hexdigest()
