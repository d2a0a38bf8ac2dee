"""What is installed in an environment, read from its metadata: nothing of it is imported or run. Holds no check."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.doctor.json_objects import parsed
from scripts.doctor.locked import normalised
from scripts.doctor.machine import Machine
from scripts.doctor.registry import Finding, skip
from scripts.doctor.subject import Subject

STAMP = "smokestack-install.json"
"""`scripts.layout` has the same name: the install writes it last."""

_SUFFIX = ".dist-info"


def distributions(machine: Machine, site_packages: Path) -> dict[str, str]:
    """Normalised name -> version of what a folder of packages holds; nothing where there is no such folder."""
    found: dict[str, str] = {}
    for entry in machine.entries(site_packages) or ():
        name, separator, version = entry[: -len(_SUFFIX)].partition("-")
        if entry.endswith(_SUFFIX) and separator:
            found[normalised(name)] = version
    return found


def requirements(machine: Machine, site_packages: Path, name: str) -> tuple[str, ...]:
    """The `Requires-Dist` lines of a distribution."""
    folder = next(
        (
            entry
            for entry in machine.entries(site_packages) or ()
            if entry.endswith(_SUFFIX) and normalised(entry[: -len(_SUFFIX)].partition("-")[0]) == name
        ),
        None,
    )
    text = machine.read_text(site_packages / folder / "METADATA") if folder else None
    return tuple(re.findall(r"(?m)^Requires-Dist:\s*(.+)$", text or ""))


@dataclass(frozen=True)
class Installed:
    """An environment that was finished from the build that is in `dist`."""

    manifest: Mapping[str, Any]
    stamp: Mapping[str, Any]
    packages: Mapping[str, str]
    """What is really there now."""

    @property
    def pinned(self) -> Mapping[str, str]:
        found = self.manifest.get("packages")
        return found if isinstance(found, dict) else {}


def when_installed(look: Callable[[Subject, Installed], Finding]) -> Callable[[Subject], Finding]:
    """`look` at an environment that is finished and up to date.

    Otherwise there is nothing to hold it to: a run builds and installs before it starts anything.
    """

    def guarded(subject: Subject) -> Finding:
        required = f"an environment that is installed from dist/{subject.stack.name}"
        text = subject.machine.read_text(subject.root / "dist" / subject.stack.name / "manifest.json") or ""
        manifest = parsed(text)
        if manifest is None:
            return skip("nothing is built yet", required)
        stamp = parsed(subject.machine.read_text(subject.environment / STAMP))
        if stamp is None:
            return skip("nothing is installed yet", required)
        if stamp.get("manifest_sha256") != hashlib.sha256(text.encode()).hexdigest():
            return skip("what is installed is of another build; the next install replaces it", required)
        return look(subject, Installed(manifest, stamp, distributions(subject.machine, subject.site_packages)))

    return guarded


def when_unchanged(look: Callable[[Subject, Installed], Finding]) -> Callable[[Subject], Finding]:
    """`look` only while the packages are still those of the build: an install replaces what somebody has changed."""

    def guarded(subject: Subject, installed: Installed) -> Finding:
        if installed.packages != installed.pinned:
            return skip("packages were changed: see runtime.packages", "the packages that were installed")
        return look(subject, installed)

    return when_installed(guarded)


def reinstall(subject: Subject) -> str:
    """The command that makes the environment afresh."""
    return f"./noxw -s install -- --stack {subject.stack.name} --force"
