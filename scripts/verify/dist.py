"""`dist/<stack>`, byte for byte: every file is what was written, and nothing else lies beside them.

Two witnesses tell which file was changed. SHA256SUMS has a digest of every other file, under a seal over those; the
manifest has the artifacts' again. A changed byte in SHA256SUMS breaks its seal, and the seal still tells whether the
files that it was of are the present ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from scripts import manifest as manifests
from scripts import sums
from scripts.digests import file_sha256
from scripts.layout import Layout
from scripts.manifest import Manifest
from scripts.provenance import SBOM_NAME, STATEMENT_NAME
from scripts.provenance.signing import SIGNATURE_NAME
from scripts.sums import Sums
from scripts.verify.findings import Finding

_DOCUMENTS = (SBOM_NAME, STATEMENT_NAME)


@dataclass
class Dist:
    """What was found. `manifest` only if it can be relied on; `whole`: the names of files that are what was written."""

    findings: list[Finding] = field(default_factory=list)
    manifest: Manifest | None = None
    whole: frozenset[str] = frozenset()
    files: int = 0


def verify_dist(layout: Layout) -> Dist:
    """Read every byte of `dist/<stack>`."""
    place = layout.relative(layout.dist)
    if not layout.dist.is_dir():
        return Dist([Finding("missing", place, "is not there: nothing was built")])
    present = _read(layout.dist)
    recorded = _recorded(layout.dist)
    if recorded is None and manifests.MANIFEST_NAME not in present:
        return Dist([Finding("missing", layout.relative(layout.manifest), "is not there: no build has ended")])
    manifest = manifests.load(layout.manifest)
    told = _told(recorded, manifest, present)
    found = [*_broken(recorded), *_compared(told, present)]
    whole = frozenset(name for name, digest in told.items() if present.get(name) == digest)
    if manifests.MANIFEST_NAME not in whole:
        manifest = None
    elif manifest is None:
        found.append(Finding("altered", manifests.MANIFEST_NAME, "is no manifest that this version can read"))
    else:
        found += _disagreements(manifest, told)
    return Dist([replace(each, file=f"{place}/{each.file}") for each in found], manifest, whole, len(present))


def _read(folder: Path) -> dict[str, str]:
    """Name -> digest, or what it is instead of a plain file."""
    with os.scandir(folder) as children:
        entries = sorted(children, key=lambda child: child.name)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip((entry.name for entry in entries), pool.map(_digest, entries), strict=True))


def _digest(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"a link to {os.readlink(entry.path)}"  # noqa: PTH115
    if entry.is_dir():
        return "a folder"
    return file_sha256(Path(entry.path)) if entry.is_file() else "no plain file"


def _recorded(folder: Path) -> Sums | None:
    path = folder / sums.FILE_NAME
    return sums.read(path.read_bytes()) if path.is_file() and not path.is_symlink() else None


def _broken(recorded: Sums | None) -> Iterator[Finding]:
    if recorded is None:
        yield Finding("missing", sums.FILE_NAME, "is not there, or is no plain file")
    elif not recorded.intact:
        yield Finding("altered", sums.FILE_NAME, "is not what was written: its first line is not of the others")


def _told(recorded: Sums | None, manifest: Manifest | None, present: Mapping[str, str]) -> dict[str, str]:
    """Name -> the digest that it should have, as far as anything tells it."""
    if recorded is not None and recorded.intact:
        return recorded.digests
    if manifest is None:
        return {} if recorded is None else _believed(recorded, present)
    ours = {artifact.file: artifact.sha256 for artifact in manifest.artifacts}
    names = (*ours, *_DOCUMENTS, manifests.MANIFEST_NAME)
    now = {name: present[name] for name in names if name in present}
    if recorded is None or recorded.seal == sums.seal(now):
        # The seal is of exactly these files, or nothing speaks against those that the manifest does not have.
        return {**now, **ours}
    believed = _believed(recorded, present)
    return {name: _likelier(now.get(name), believed.get(name), ours.get(name)) for name in names}


def _believed(recorded: Sums, present: Mapping[str, str]) -> dict[str, str]:
    """What is left in sums that were changed: for each file that they mention, its digest, or another one."""
    return {
        name: digest if recorded.mentions(name, digest) else recorded.digests.get(name, "something else")
        for name, digest in present.items()
        if recorded.mentions(name)
    }


def _likelier(present: str | None, line: str | None, manifest: str | None) -> str:
    """One of two witnesses, either of which may be altered, is enough to believe in a file."""
    if present is not None and present in {line, manifest}:
        return present
    return manifest or line or "nothing tells it"


def _compared(told: Mapping[str, str], present: Mapping[str, str]) -> Iterator[Finding]:
    for name, digest in told.items():
        if name not in present:
            yield Finding("missing", name, "is not there", f"sha256 {digest}")
        elif present[name] != digest:
            yield Finding("altered", name, "is not what was written", f"sha256 {digest}", present[name])
    for name in sorted(present.keys() - told.keys() - {sums.FILE_NAME, SIGNATURE_NAME}):
        yield Finding("extra", name, "is not of this build", "nothing")


def _disagreements(manifest: Manifest, told: Mapping[str, str]) -> Iterator[Finding]:
    """A whole build has exactly these files, and manifest and sums tell the same of each."""
    ours = {artifact.file: artifact.sha256 for artifact in manifest.artifacts}
    expected = {*ours, *_DOCUMENTS, manifests.MANIFEST_NAME}
    for name in sorted(expected - told.keys()):
        yield Finding("missing", name, "was not written by the build")
    for name in sorted(told.keys() - expected):
        yield Finding("extra", name, f"is in {sums.FILE_NAME} and not in the manifest", "nothing")
    for name in sorted(ours.keys() & told.keys()):
        if ours[name] != told[name]:
            problem = f"has one digest in the manifest and another in {sums.FILE_NAME}"
            yield Finding("altered", name, problem, f"sha256 {ours[name]}", told[name])
