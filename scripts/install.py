"""`install`: the stack's environment from its lock and its manifest, redone only when one of them changed.

The stamp inside the environment is removed before anything is touched and written after everything was asserted, so
that an interrupted install is never taken for a finished one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scripts import environment, inventory, wheels
from scripts import manifest as manifests
from scripts.assertions import assert_installed
from scripts.console import Console
from scripts.digests import file_sha256
from scripts.environment import Environment
from scripts.errors import InstallError
from scripts.exclusion import unused
from scripts.inventory import Entry
from scripts.layout import Layout
from scripts.manifest import Artifact, Manifest, verify_artifacts
from scripts.publish import publish_text, publishing, remove
from scripts.wheels import RecordLine

CONTENTS = "smokestack-contents.json"
Document = TypeVar("Document", bound=BaseModel)


class Stamp(BaseModel):
    """`smokestack-install.json`: what an environment was filled from, and what was asserted of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    stack: str
    manifest_sha256: str
    inputs: str
    python: str
    packages: dict[str, str]
    asserted: list[str]


class Contents(BaseModel):
    """Digests of what an environment was filled from; by them a later install replaces only what has changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lock_sha256: str
    artifacts: dict[str, str]


def install(layout: Layout, manifest: Manifest, torch_backend: str, console: Console, *, force: bool = False) -> bool:
    """Bring the environment up to date; True when nothing had to be done. The caller holds the stack's lock.

    Raises `InstallError` when something has to be done while a run uses the environment.
    """
    env = Environment(layout, manifest.python)
    stamp = None if force else read_stamp(layout)
    manifest_sha256 = file_sha256(layout.manifest)
    if stamp is not None and _is_current(env, stamp, manifest, manifest_sha256):
        return True
    verify_artifacts(manifest, layout.dist)
    python = environment.find_python(layout, manifest.python)
    with unused(layout.in_use, layout.environment):
        remove(layout.stamp)
        renewed = _renewed(env, stamp, manifest)
        if renewed is None:
            with console.step(f"make {manifest.environment} with Python {manifest.python}"):
                environment.create(env, python)
        with console.step(f"install {len(manifest.packages)} packages"):
            environment.fill(env, manifest, torch_backend, renewed or [])
            _put_binaries(env, manifest)
        with console.step("check what is installed"):
            _write_contents(env, manifest)
            entries = inventory.take(env.path)
            asserted = assert_installed(env, manifest, entries)
        _write_stamp(env, manifest, manifest_sha256, asserted, entries)
    return False


def plan(layout: Layout, *, force: bool = False) -> list[str]:
    """What `install` would do after an up-to-date build, in words; nothing when the environment is current."""
    manifest, stamp = manifests.load(layout.manifest), None if force else read_stamp(layout)
    place = layout.relative(layout.environment)
    if manifest is None or stamp is None:
        return [f"make {place} and fill it from {layout.relative(layout.lock)} and {layout.relative(layout.dist)}"]
    env = Environment(layout, manifest.python)
    if _is_current(env, stamp, manifest, file_sha256(layout.manifest)):
        return []
    renewed = _renewed(env, stamp, manifest)
    what = "make it afresh" if renewed is None else f"replace {', '.join(each.name for each in renewed) or 'nothing'}"
    return [f"bring {place} up to date: {what}"]


def read_stamp(layout: Layout) -> Stamp | None:
    """The stamp of a finished environment; None when it was never finished or is not ours."""
    return _read(layout.stamp, Stamp)


def _read(path: Path, model: type[Document]) -> Document | None:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, ValidationError):
        return None


def _is_current(env: Environment, stamp: Stamp, manifest: Manifest, manifest_sha256: str) -> bool:
    """Whether the environment was filled from this manifest, and nobody has added or removed packages since."""
    return (
        stamp.manifest_sha256 == manifest_sha256
        and stamp.python == env.python_version()
        and env.distributions() == manifest.packages
    )


def _renewed(env: Environment, stamp: Stamp | None, manifest: Manifest) -> list[Artifact] | None:
    """The artifacts to replace in an environment that is otherwise right, or None: it must be made afresh.

    A changed payload is a matter of seconds this way; the assertions afterwards are those of a fresh environment.
    """
    contents = _read(env.path / CONTENTS, Contents)
    if stamp is None or contents is None or contents.lock_sha256 != manifest.lock.sha256:
        return None
    if env.python_version() != stamp.python or env.distributions() != stamp.packages:
        return None
    return [each for each in manifest.artifacts if contents.artifacts.get(each.name) != each.sha256]


def _put_binaries(env: Environment, manifest: Manifest) -> None:
    """Put the executables on the environment's `bin`: copies of those in `dist`, links to those inside a wheel.

    What a wheel of ours holds is looked up in that wheel, and only then what an installed package says that it has.
    """
    records: list[dict[str, tuple[RecordLine, ...]]] = []
    for one in manifest.wheels:
        own = wheels.read_record(env.layout.dist / one.file, one.name, one.version)
        records.append({name: (line,) for name, line in own.items()})
    records.append(env.records())
    built = {artifact.sha256: artifact.file for artifact in manifest.artifacts if artifact.kind == "binary"}
    for name, binary in manifest.binaries.items():
        if binary.sha256 in built:
            with publishing(env.path / binary.path) as partial:
                shutil.copyfile(env.layout.dist / built[binary.sha256], partial)
                partial.chmod(0o755)
            continue
        places = [
            env.site_packages / file
            for record in records
            for file, lines in record.items()
            if any(line.sha256 == binary.sha256 for line in lines)
        ]
        if not places:
            raise InstallError(f"no installed wheel has {name}", expected=f"a file with sha256 {binary.sha256}")
        link = env.path / binary.path
        remove(link)
        link.symlink_to(Path(os.path.relpath(places[0], link.parent)))


def _write_contents(env: Environment, manifest: Manifest) -> None:
    contents = Contents(
        lock_sha256=manifest.lock.sha256,
        artifacts={artifact.name: artifact.sha256 for artifact in manifest.artifacts},
    )
    publish_text(env.path / CONTENTS, contents.model_dump_json(indent=2) + "\n")


def _write_stamp(
    env: Environment, manifest: Manifest, manifest_sha256: str, asserted: list[str], entries: dict[str, Entry]
) -> None:
    """Write the stamp, and just before it appears the inventory, which has the stamp's digest, too."""
    python = env.python_version()
    if python is None:
        raise InstallError("the environment has no Python", where=str(env.path))
    stamp = Stamp(
        stack=manifest.stack,
        manifest_sha256=manifest_sha256,
        inputs=manifest.inputs,
        python=python,
        packages=manifest.packages,
        asserted=asserted,
    )
    with publishing(env.layout.stamp) as partial:
        partial.write_text(json.dumps(stamp.model_dump(by_alias=True), indent=2) + "\n", encoding="utf-8")
        inventory.write(env.path, {**entries, env.layout.stamp.name: inventory.entry(partial)})
