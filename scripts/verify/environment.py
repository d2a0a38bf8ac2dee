"""`.venv-<stack>`, entry by entry, against what the install wrote down and against our wheels. Changes nothing there.

The inventory tells of every file, link and folder. RECORD tells of a package's files a second time: for ours it is the
one inside the wheel of `dist`, for the others the one that was installed with them.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from scripts import install, inventory, wheels
from scripts.digests import file_sha256
from scripts.environment import Environment
from scripts.inventory import Entry
from scripts.layout import Layout
from scripts.manifest import Manifest
from scripts.verify.findings import Finding
from scripts.wheels import RecordLine


@dataclass
class Installed:
    """What was found, and everything that is in the environment."""

    findings: list[Finding] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)


def verify_environment(layout: Layout, manifest: Manifest | None, whole: Collection[str]) -> Installed:
    """Read every byte of the environment. `manifest` if it can be relied on, `whole` the files of `dist` that can."""
    place = layout.relative(layout.environment)
    if not layout.environment.is_dir():
        return Installed([Finding("missing", place, "is not there: nothing was installed")])
    entries = inventory.take(layout.environment)
    found = list(_against_inventory(layout, entries))
    wrong = {finding.file for finding in found}
    if manifest is not None:
        env = Environment(layout, manifest.python)
        of_another = list(_stamp(env, wrong))
        # The wheels of another build tell nothing of this environment.
        found += of_another or _packages(env, manifest, wrong)
        found += _against_records(env, None if of_another else manifest, whole, entries, wrong)
    found += [
        Finding("missing", name, "is a link that leads nowhere", found=entry.content)
        for name, entry in entries.items()
        if entry.kind == "link" and name not in wrong and not (layout.environment / name).exists()
    ]
    return Installed([replace(each, file=f"{place}/{each.file}".rstrip("/")) for each in found], entries)


def _against_inventory(layout: Layout, entries: Mapping[str, Entry]) -> Iterator[Finding]:
    recorded = inventory.load(layout.environment)
    if recorded is None:
        yield Finding(
            "missing", inventory.FILE_NAME, "is not there: the install did not end, or is of an older version"
        )
        return
    if not recorded.intact:
        yield Finding("altered", inventory.FILE_NAME, "is not what was written: its seal is broken")
    if recorded.seal == inventory.seal(entries):
        return
    if recorded.entries is None:
        problem = "cannot be read, and is not of what is there now: only files of packages can be judged"
        yield Finding("unjudged", "", problem)
        return
    for name in sorted(entries.keys() | recorded.entries.keys()):
        yield from _entry(layout, name, recorded.entries.get(name), entries.get(name))


def _entry(layout: Layout, name: str, expected: str | None, found: Entry | None) -> Iterator[Finding]:
    if found is None:
        yield Finding("missing", name, "is not there", expected)
    elif expected is None:
        yield Finding("extra", name, "was not there when the install ended", "nothing", str(found))
    elif str(found) != expected:
        links = (layout.environment / name).lstat().st_nlink if found.kind == "file" else 1
        shared = f" (one file in {links} places: uv's cache has it, too)" if links > 1 else ""
        yield Finding("altered", name, "is not what was installed", expected, f"{found}{shared}")


def _against_records(
    env: Environment, manifest: Manifest | None, whole: Collection[str], entries: Mapping[str, Entry], wrong: set[str]
) -> Iterator[Finding]:
    for name, told in _promises(env, manifest, whole, wrong).items():
        entry = entries.get(name)
        if name not in wrong and (entry is None or entry.content not in {line.sha256 for line, _ in told}):
            found = "nothing" if entry is None else str(entry)
            witnesses = " or ".join(witness for _, witness in told)
            digests = " or ".join(line.sha256 for line, _ in told)
            yield Finding("altered", name, f"is not what {witnesses} has", f"sha256 {digests}", found)
            wrong.add(name)


def _promises(
    env: Environment, manifest: Manifest | None, whole: Collection[str], wrong: Collection[str]
) -> dict[str, list[tuple[RecordLine, str]]]:
    """Path -> its lines, and where each stands; from no RECORD that is itself altered.

    Several where several packages bring the same file: it is that of the one which was installed last.
    """
    base = env.site_packages.relative_to(env.path).as_posix()
    promised: dict[str, list[tuple[RecordLine, str]]] = {}

    def add(lines: Mapping[str, RecordLine], witness: str, *, alone: bool = False) -> None:
        for name, line in lines.items():
            # Bytecode that a wheel carries is compiled again by the install.
            if not name.endswith(".pyc"):
                place = posixpath.normpath(f"{base}/{name}")
                promised[place] = [*([] if alone else promised.get(place, [])), (line, witness)]

    for path in sorted(env.site_packages.glob("*.dist-info/RECORD")):
        name = path.relative_to(env.path).as_posix()
        if name not in wrong:
            add(wheels.parse_record(path.read_text(encoding="utf-8")), name)
    if manifest is not None:
        for artifact in manifest.wheels:
            if artifact.file in whole:
                wheel = env.layout.dist / artifact.file
                add(wheels.read_record(wheel, artifact.name, artifact.version), artifact.file, alone=True)
        for binary in manifest.binaries.values():
            place = os.path.relpath(os.path.realpath(env.path / binary.path), os.path.realpath(env.path))
            promised.setdefault(place, [(RecordLine(binary.sha256, 0), "the manifest")])
    return promised


def _stamp(env: Environment, wrong: Collection[str]) -> Iterator[Finding]:
    """Whether the environment was finished, and of the present manifest."""
    name = env.layout.stamp.name
    if name in wrong:
        return
    stamp = install.read_stamp(env.layout)
    if stamp is None:
        yield Finding("missing", name, "is not there: the install did not end")
        return
    present = file_sha256(env.layout.manifest)
    if stamp.manifest_sha256 != present:
        yield Finding("inputs", name, "was installed from another manifest", f"sha256 {present}", stamp.manifest_sha256)


def _packages(env: Environment, manifest: Manifest, wrong: Collection[str]) -> list[Finding]:
    """The manifest's distributions and no others; of altered metadata nothing more can be told."""
    if any(".dist-info/" in name for name in wrong):
        return []
    base, found = env.site_packages.relative_to(env.path).as_posix(), env.distributions()
    return [
        Finding(
            "altered",
            f"{base}/{name}",
            "is not the manifest's package",
            manifest.packages.get(name, "no such package"),
            found.get(name, "no such package"),
        )
        for name in sorted(found.keys() | manifest.packages.keys())
        if found.get(name) != manifest.packages.get(name)
    ]
