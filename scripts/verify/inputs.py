"""Whether `dist/<stack>` was built from what is there now: the stack file, the lock, the sources, this build plane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from scripts import pins
from scripts.build_inputs import read_inputs
from scripts.digests import file_sha256
from scripts.errors import BuildError, BuildPlaneError, DoctorError, PinError, UsageError
from scripts.layout import Layout
from scripts.manifest import Manifest
from scripts.stackfile import Stack
from scripts.verify.findings import Finding


@dataclass
class Present:
    """The stack file as it is, if it can be read; what a build would be of now, if this machine can say it."""

    stack: Stack | None = None
    inputs: str | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(layout: Layout) -> Present:
    """Read what a build would start from now."""
    present = Present()
    try:
        present.stack = pins.load(layout.stack_file)
        present.inputs = read_inputs(layout).digest
    except DoctorError as error:
        # To verify what another machine has built one needs no compilers.
        present.notes.append(f"not compared with what a build would start from here: {error.what}")
    except (PinError, BuildError, UsageError) as error:
        present.findings.append(_unreadable(layout, error))
    return present


def compare(layout: Layout, present: Present, manifest: Manifest) -> Iterator[Finding]:
    """Each input of a whole manifest that is another one now."""
    file = layout.relative(layout.manifest)
    lock = file_sha256(layout.lock) if layout.lock.is_file() else "no such file"
    if manifest.stack != layout.stack:
        yield Finding("inputs", file, "is of another stack", layout.stack, manifest.stack)
    elif lock != manifest.lock.sha256:
        yield Finding("inputs", manifest.lock.path, "has changed since the build", manifest.lock.sha256, lock)
    elif present.inputs is not None and present.inputs != manifest.inputs and not dirty(manifest):
        yield Finding(
            "inputs",
            file,
            "was built from other inputs: another stack file, payload, build plane or tools than what is here now",
            present.inputs,
            manifest.inputs,
        )


def dirty(manifest: Manifest) -> list[str]:
    """The sources whose files were not those of their revision: the caller of the build has allowed it."""
    return [source.name for source in manifest.sources if source.dirty]


def _unreadable(layout: Layout, error: BuildPlaneError) -> Finding:
    root = f"{layout.root}/"
    where = (error.where or str(layout.stack_file)).removeprefix(root)
    return Finding("inputs", where, error.what, error.expected, error.found)
