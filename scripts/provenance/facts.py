"""What the documents are made from: the manifest, the stack file and the lock files, read once and held to each other.

Everything here is the same on every machine: no absolute path, no time, no name of a host or a user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from scripts import pins
from scripts.digests import file_sha256, json_sha256
from scripts.errors import BuildError
from scripts.layout import Layout
from scripts.manifest import LockFile, Manifest
from scripts.provenance import lockgraph, wheel_requirements
from scripts.requirements_file import Locked
from scripts.stackfile import Stack

# They decide the documents' bytes as much as the code here does.
_LIBRARIES = ("cyclonedx-python-lib", "in-toto-attestation", "packageurl-python", "protobuf")


@dataclass(frozen=True)
class Facts:
    """One build, as data.

    `requirers`: locked package -> what it was locked for (see `lockgraph`); `required`: wheel of ours -> what it needs.
    """

    manifest: Manifest
    stack: Stack
    locked: Mapping[str, Locked]
    stack_file: LockFile
    locks: tuple[LockFile, ...]
    requirers: Mapping[str, frozenset[str]]
    required: Mapping[str, frozenset[str]]


def read(layout: Layout, manifest: Manifest, stack: Stack, locked: Mapping[str, Locked]) -> Facts:
    """Read what the manifest does not hold; the artifacts are in `dist/<stack>` by then.

    Raises `BuildError` when the stack file or the lock are no longer those that were built from.
    """
    if pins.load(layout.stack_file) != stack:
        raise _changed(layout.relative(layout.stack_file), manifest, expected=None, found=None)
    contents = {layout.relative(path): path.read_bytes() for path in (layout.stack_file, *_locks(layout))}
    files = [LockFile(path=path, sha256=hashlib.sha256(content).hexdigest()) for path, content in contents.items()]
    stack_file, locks = files[0], files[1:]
    if manifest.lock not in locks:
        found = next((lock.sha256 for lock in locks if lock.path == manifest.lock.path), "no such file")
        raise _changed(manifest.lock.path, manifest, expected=manifest.lock.sha256, found=found)
    requirers = lockgraph.requirers(contents[manifest.lock.path].decode())
    wheels = [artifact for artifact in manifest.artifacts if artifact.kind == "wheel"]
    required = {each.name: wheel_requirements.required(layout.dist, each, manifest.python) for each in wheels}
    return Facts(manifest, stack, locked, stack_file, tuple(locks), requirers, required)


def inputs_sha256(layout: Layout) -> str:
    """One digest over all that the documents depend on beside the manifest: when it changes, they are stale."""
    code = {path.name: path for path in Path(__file__).parent.glob("*.py")}
    files = code | {layout.relative(path): path for path in (layout.stack_file, *_locks(layout))}
    digests = {name: file_sha256(path) for name, path in files.items()}
    return json_sha256({"files": digests, "libraries": {name: metadata.version(name) for name in _LIBRARIES}})


def _changed(path: str, manifest: Manifest, *, expected: str | None, found: str | None) -> BuildError:
    hint = f"./noxw -s build -- --stack {manifest.stack}"
    return BuildError(f"{path} changed while the build went on", expected=expected, found=found, hint=hint)


def _locks(layout: Layout) -> list[Path]:
    """Every lock that decides what a build is made with: the stack's, its build's, and the tool environment's."""
    return [*sorted(layout.stack_dir.glob("*.lock")), layout.root / "scripts" / "requirements" / "tool.lock"]
