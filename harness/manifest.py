"""The bridge from the build plane: the stack's manifest, the install stamp, and what is really installed.

`dist/<stack>/manifest.json` says what was built and pinned; `<environment>/smokestack-install.json` says which
manifest the environment was made from. Neither is trusted alone: `installed_pins` reads the environment itself.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from harness.config import Platform
from harness.errors import InstallError
from harness.events import BinaryHashes, Pins

MANIFEST_FILE = "manifest.json"
STAMP_FILE = "smokestack-install.json"

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
PythonSeries = Annotated[str, StringConstraints(pattern=r"^3\.\d+$")]
Document = TypeVar("Document", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SourceFile(_Strict):
    """A published file that an artifact was made from."""

    file: str
    sha256: Sha256


class Artifact(_Strict):
    """One wheel or executable in `dist/<stack>/`. `size` is in bytes."""

    name: str
    version: str
    kind: Literal["wheel", "binary"] = "wheel"
    file: str
    sha256: Sha256
    size: int = Field(ge=0)
    made_from: list[SourceFile] = Field(default_factory=list)


class Submodule(_Strict):
    """A submodule of a source, by its path in it."""

    path: str
    revision: Revision


class NestedRevision(_Strict):
    """What a source fetches while it is built; a floating one has no revision."""

    name: str
    repository: str | None = None
    revision: Revision | None = None
    floating: bool


class SourceRevision(_Strict):
    """A repository of the stack. `dirty`: built from changed files, whose git hash is `tree`."""

    name: str
    repository: str
    revision: Revision
    tree: Revision | None = None
    dirty: bool = False
    described: str | None = None
    submodules: list[Submodule] = []
    nested: list[NestedRevision] = []


class LockFile(_Strict):
    """The hash-locked requirements of the stack; `path` is relative to the project."""

    path: str
    sha256: Sha256


class Binary(_Strict):
    """An executable that must be in the environment; `path` is relative to it."""

    path: str
    sha256: Sha256


class Planes(_Strict):
    """How Dynamo's processes find each other and talk."""

    discovery: Literal["etcd"]
    request: Literal["tcp"]
    event: Literal["zmq"]


class Manifest(_Strict):
    """`dist/<stack>/manifest.json`. `packages` maps normalised distribution names to locked versions."""

    schema_version: Literal[1] = Field(alias="schema")
    stack: str
    summary: str
    platform: Platform
    python: PythonSeries
    dialect: str
    refit_backend: str
    planes: Planes
    inputs: Sha256
    environment: str
    lock: LockFile
    artifacts: list[Artifact]
    binaries: dict[str, Binary]
    packages: dict[str, str]
    sources: list[SourceRevision] = []
    tools: dict[str, str] = {}


class InstallStamp(_Strict):
    """`<environment>/smokestack-install.json`, which the installer writes last."""

    schema_version: Literal[1] = Field(alias="schema")
    stack: str
    manifest_sha256: Sha256
    inputs: Sha256
    python: str
    packages: dict[str, str]
    asserted: list[str]


def manifest_path(project_root: Path, stack: str) -> Path:
    """Where the build plane puts the manifest of `stack`."""
    return project_root / "dist" / stack / MANIFEST_FILE


def load_manifest(project_root: Path, stack: str) -> Manifest:
    """Read and check the stack's manifest; raises InstallError."""
    path = manifest_path(project_root, stack)
    manifest = _load(path, Manifest, f"./noxw -s build -- --stack {stack}")
    if manifest.stack != stack:
        raise InstallError(
            "the manifest belongs to another stack", expected=stack, found=manifest.stack, where=str(path)
        )
    return manifest


def load_stamp(environment: Path, stack: str) -> InstallStamp:
    """Read the install stamp of `environment`; raises InstallError when the install never finished."""
    return _load(environment / STAMP_FILE, InstallStamp, f"./noxw -s install -- --stack {stack}")


def require_installed(project_root: Path, manifest: Manifest, environment: Path) -> InstallStamp:
    """The environment's stamp; raises InstallError unless it was made from exactly this manifest."""
    stamp = load_stamp(environment, manifest.stack)
    expected = _sha256(manifest_path(project_root, manifest.stack))
    if stamp.manifest_sha256 != expected:
        raise InstallError(
            f"{environment.name} was installed from another manifest",
            expected=expected,
            found=stamp.manifest_sha256,
            where=str(environment / STAMP_FILE),
            hint=f"./noxw -s install -- --stack {manifest.stack}",
        )
    return stamp


def installed_packages(environment: Path) -> dict[str, str]:
    """Normalised name -> version of every distribution in the environment, read from its metadata without running it.

    A name that is installed more than once gets all its versions, joined by " and ", and so matches no pin.
    """
    found: dict[str, set[str]] = {}
    for folder in sorted(environment.glob("lib/python3*/site-packages")):
        for distribution in importlib.metadata.distributions(path=[str(folder)]):
            name = distribution.metadata["Name"] or "(unnamed)"
            found.setdefault(normalise_name(name), set()).add(distribution.version)
    return {name: " and ".join(sorted(versions)) for name, versions in sorted(found.items())}


def installed_pins(manifest: Manifest, environment: Path) -> Pins:
    """The evidence for `stack.pins-installed`: what the manifest pins against what lies in the environment."""
    found = installed_packages(environment)
    expected = {normalise_name(name): version for name, version in manifest.packages.items()}
    return Pins(
        expected=expected,
        found=dict.fromkeys(expected, None) | found,
        binaries={
            name: BinaryHashes(expected=binary.sha256, found=_sha256_if_there(environment / binary.path))
            for name, binary in manifest.binaries.items()
        },
    )


def normalise_name(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _load(path: Path, model: type[Document], hint: str) -> Document:
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError as missing:
        raise InstallError(f"there is no {path.name}", where=str(path), hint=hint) from missing
    except OSError as unreadable:
        raise InstallError(f"{path.name} cannot be read: {unreadable}", where=str(path), hint=hint) from unreadable
    except ValidationError as invalid:
        raise InstallError(
            f"{path.name} is not what this version reads",
            expected=f"a valid {model.__name__}",
            found=_problems(invalid),
            where=str(path),
            hint=hint,
        ) from invalid


def _problems(invalid: ValidationError) -> str:
    found = invalid.errors(include_url=False, include_input=False)
    shown = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'document'}: {problem['msg']}" for problem in found[:5]
    ]
    return "; ".join(shown) + ("" if len(found) <= 5 else f"; and {len(found) - 5} more")


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _sha256_if_there(path: Path) -> str | None:
    return _sha256(path) if path.is_file() else None
