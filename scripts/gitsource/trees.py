"""Git's tree hash of the files in a folder, worked out here: byte for byte, with no git, index, filter or ignore rule.

What is hashed is what a compiler will read. Mode bits count as git counts them: executable by the owner or not.
Imports nothing of the project but its errors.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import BuildError

FILE, EXECUTABLE, LINK, SUBMODULE, FOLDER = "100644", "100755", "120000", "160000", "40000"
_CHUNK_BYTES = 1 << 20
_LFS = b"version https://git-lfs.github.com/spec/"
_LFS_BYTES = 1024
"""A pointer file of Git LFS is never longer; see its specification."""


@dataclass(frozen=True)
class Entry:
    """One file, link or submodule: git's mode and object id."""

    mode: str
    oid: str


def listing(folder: Path, links: Mapping[str, str], repositories: Collection[str] = ("",)) -> dict[str, Entry]:
    """All that lies below `folder`, by path. Empty folders are nothing to git, nor here.

    `links` are submodules by path: the revision stands for what is in them. `repositories` are the folders whose `.git`
    is not looked at; any other `.git` is listed like everything else.
    """
    found = {}
    for path, item in _walk(folder, "", links, frozenset(repositories)):
        found[path] = Entry(SUBMODULE, links[path]) if path in links else _hashed(item)
    return found


def tree_id(entries: Mapping[str, Entry]) -> str:
    """The id of the tree that holds exactly these entries."""
    folders: dict[str, dict[str, Entry]] = {"": {}}
    for path, entry in entries.items():
        parent, _, name = path.rpartition("/")
        _folder(folders, parent)[name] = entry
    for folder in sorted(folders, key=lambda path: path.count("/") + bool(path), reverse=True):
        oid = _object_id("tree", _tree_bytes(folders[folder]))
        if folder == "":
            return oid
        parent, _, name = folder.rpartition("/")
        folders[parent][name] = Entry(FOLDER, oid)
    raise AssertionError("the root folder comes last")


def commit_id(commit: bytes) -> str:
    """The id of a commit, as git keeps it."""
    return _object_id("commit", commit)


def differences(expected: Mapping[str, Entry], found: Mapping[str, Entry]) -> list[str]:
    """What is not as expected, one line per path, in order."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        wanted, there = expected.get(path), found.get(path)
        if wanted is None:
            lines.append(f"not in the revision: {path}")
        elif there is None:
            lines.append(f"missing: {path}")
        elif wanted.oid != there.oid:
            lines.append(f"changed: {path}")
        elif wanted.mode != there.mode:
            lines.append(f"mode {there.mode} instead of {wanted.mode}: {path}")
    return lines


def lfs_pointers(folder: Path, entries: Mapping[str, Entry]) -> list[str]:
    """The files that only say where Git LFS would get their contents from."""
    return [
        path
        for path, entry in sorted(entries.items())
        if entry.mode in {FILE, EXECUTABLE}
        and (folder / path).stat().st_size < _LFS_BYTES
        and (folder / path).read_bytes().startswith(_LFS)
    ]


def _walk(
    folder: Path, prefix: str, links: Collection[str], repositories: frozenset[str]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as items:
        for item in items:
            path = prefix + item.name
            if item.name == ".git" and prefix.removesuffix("/") in repositories:
                continue
            if item.is_dir(follow_symlinks=False) and path not in links:
                yield from _walk(Path(item.path), f"{path}/", links, repositories)
            else:
                yield path, item


def _hashed(item: os.DirEntry[str]) -> Entry:
    status = item.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return Entry(LINK, _object_id("blob", os.fsencode(Path(item.path).readlink())))
    if not stat.S_ISREG(status.st_mode):
        raise BuildError("neither a file, a folder nor a link: git cannot hold it", where=item.path)
    return Entry(EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE, _file_id(Path(item.path), status.st_size))


def _file_id(path: Path, size: int) -> str:
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _object_id(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def _folder(folders: dict[str, dict[str, Entry]], path: str) -> dict[str, Entry]:
    if path not in folders:
        folders[path] = {}
        _folder(folders, path.rpartition("/")[0])
    return folders[path]


def _tree_bytes(entries: Mapping[str, Entry]) -> bytes:
    # Git sorts a folder as if its name ended with a slash.
    ordered = sorted(entries.items(), key=lambda each: os.fsencode(each[0]) + b"/" * (each[1].mode == FOLDER))
    return b"".join(
        entry.mode.encode() + b" " + os.fsencode(name) + b"\0" + bytes.fromhex(entry.oid) for name, entry in ordered
    )
