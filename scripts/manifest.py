"""`dist/<stack>/manifest.json`: what a build made and what an environment must contain. The run plane reads it too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scripts import sums
from scripts.digests import file_sha256
from scripts.errors import InstallError
from scripts.publish import publish_bytes, publish_text
from scripts.stackfile import Planes

MANIFEST_NAME = "manifest.json"
SUMS_NAME = sums.FILE_NAME


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SourceFile(_Strict):
    """A published file, or a source folder, that went into an artifact."""

    file: str
    sha256: str


class Artifact(_Strict):
    """One file of ours in `dist/<stack>`: a wheel, or an executable that becomes `bin/<name>`; `size` in bytes."""

    name: str
    version: str
    kind: Literal["wheel", "binary"] = "wheel"
    file: str
    sha256: str
    size: int
    made_from: list[SourceFile]


class Submodule(_Strict):
    """A submodule of a source, by its path in it."""

    path: str
    revision: str


class NestedRevision(_Strict):
    """What a source fetches while it is built. A floating one is whatever that source asks for at that moment."""

    name: str
    repository: str | None = None
    revision: str | None = None
    floating: bool


class SourceRevision(_Strict):
    """A repository of the stack file. `tree` is git's hash of the files; None for one that nothing is built from.

    A dirty tree's `tree` is that of the files that were there, not of the revision. `described` is what `git describe`
    says, where the version comes from tags.
    """

    name: str
    repository: str
    revision: str
    tree: str | None = None
    dirty: bool = False
    described: str | None = None
    submodules: list[Submodule] = []
    nested: list[NestedRevision] = []


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
    sources: list[SourceRevision] = []
    tools: dict[str, str] = {}

    @property
    def wheels(self) -> list[Artifact]:
        """The artifacts that an installer installs."""
        return [artifact for artifact in self.artifacts if artifact.kind == "wheel"]

    def text(self) -> str:
        """The manifest as it is written."""
        return json.dumps(self.model_dump(by_alias=True), indent=2) + "\n"

    def publish(self, path: Path, documents: Mapping[str, bytes]) -> None:
        """Write what describes the artifacts: `documents` (file name -> bytes), the sums, and last the manifest."""
        for name, content in documents.items():
            publish_bytes(path.with_name(name), content)
        publish_text(path.with_name(SUMS_NAME), self.sums(documents))
        publish_text(path, self.text())

    def sums(self, documents: Mapping[str, bytes]) -> str:
        """`SHA256SUMS`: the artifacts, the documents about them and the manifest, as `sha256sum --check` reads it."""
        digests = {artifact.file: artifact.sha256 for artifact in self.artifacts}
        digests |= {name: hashlib.sha256(content).hexdigest() for name, content in documents.items()}
        digests[MANIFEST_NAME] = hashlib.sha256(self.text().encode()).hexdigest()
        return sums.render(digests)


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
