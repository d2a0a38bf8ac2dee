"""`dist/<stack>/manifest.json`: what a build made and what an environment must contain. The run plane reads it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scripts.digests import file_sha256
from scripts.errors import InstallError
from scripts.pins import Planes
from scripts.publish import publish_text

SUMS_NAME = "SHA256SUMS"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SourceFile(_Strict):
    """A published file, or a source folder, that went into an artifact."""

    file: str
    sha256: str


class Artifact(_Strict):
    """One wheel in `dist/<stack>`; `size` in bytes."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    made_from: list[SourceFile]


class InstalledBinary(_Strict):
    """An executable, by its path in the environment."""

    path: str
    sha256: str


class LockFile(_Strict):
    path: str
    sha256: str


class Manifest(_Strict):
    """Everything that the install and the run need to know of a build."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    stack: str
    summary: str
    platform: str
    python: str
    dialect: str
    refit_backend: str
    planes: Planes
    inputs: str
    environment: str
    lock: LockFile
    artifacts: list[Artifact]
    binaries: dict[str, InstalledBinary]
    packages: dict[str, str]

    def publish(self, path: Path) -> None:
        """Write the manifest, last of all of a build's files, and the sums beside it just before."""
        sums = "".join(f"{artifact.sha256}  {artifact.file}\n" for artifact in self.artifacts)
        publish_text(path.with_name(SUMS_NAME), sums)
        publish_text(path, json.dumps(self.model_dump(by_alias=True), indent=2) + "\n")


def load(path: Path) -> Manifest | None:
    """The manifest of a finished build, or None when there is no complete one."""
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, ValidationError):
        return None


def verify_artifacts(manifest: Manifest, dist: Path) -> None:
    """Read every artifact's bytes. Raises `InstallError` for one that is not the manifest's."""
    for artifact in manifest.artifacts:
        path = dist / artifact.file
        found = file_sha256(path) if path.is_file() else "no such file"
        if found != artifact.sha256:
            raise InstallError(
                f"{artifact.file} is not the file of the manifest",
                expected=artifact.sha256,
                found=found,
                where=str(path),
                hint=f"./noxw -s build -- --stack {manifest.stack} --force",
            )
