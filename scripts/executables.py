"""The executables that a manifest names, each with the digest that it has once it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts import wheels
from scripts.manifest import Artifact, InstalledBinary
from scripts.recipes.vllm import FRONT_END
from scripts.stackfile import Binary, Stack


def named(dist: Path, stack: Stack, artifacts: Sequence[Artifact]) -> dict[str, InstalledBinary]:
    """Those whose digest the stack file pins, or, of a stack from source, those that were built into `dist`."""
    if stack.recipes is not None:
        digests = _built(dist, artifacts)
    else:
        pinned: Mapping[str, Binary] = stack.binaries if stack.engine is None else stack.engine.binaries
        digests = {name: binary.sha256 for name, binary in pinned.items()}
    return {name: InstalledBinary(path=f"bin/{name}", sha256=digest) for name, digest in digests.items()}


def _built(dist: Path, artifacts: Sequence[Artifact]) -> dict[str, str]:
    """Artifacts of their own, and the engine's front end inside its wheel."""
    digests = {artifact.name: artifact.sha256 for artifact in artifacts if artifact.kind == "binary"}
    for artifact in artifacts:
        if artifact.name == "vllm":
            record = wheels.read_record(dist / artifact.file, artifact.name, artifact.version)
            digests["vllm-rs"] = record[FRONT_END].sha256
    return digests
