"""The payload's wheel: what runs inside the stack's environment, built from `harness/payload`.

flit_core writes it, `wheels` writes it again in the one fixed look that all our wheels have.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]

from scripts import wheels
from scripts.errors import BuildError

# Any constant: flit_core stamps files with it, and `wheels` stamps them again.
_EPOCH = "315532800"
_TAG = "py3-none-any"


@dataclass(frozen=True)
class Payload:
    """The payload's identity, as its pyproject.toml says it."""

    distribution: str
    version: str

    @property
    def wheel_name(self) -> str:
        return f"{self.distribution.replace('-', '_')}-{self.version}-{_TAG}.whl"


def identify(source: Path) -> Payload:
    """Read the payload's name and version. Raises `BuildError` when there is no such project."""
    project = source / "pyproject.toml"
    if not project.is_file():
        raise BuildError("the payload is not there", expected=str(project), found="no such file")
    table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
    if not {"name", "version"} <= table.keys():
        raise BuildError("the payload has no fixed name and version", where=str(project))
    return Payload(table["name"], table["version"])


def build(source: Path, payload: Payload, target: Path) -> None:
    """Write the payload's wheel to `target`."""
    dist_info = wheels.dist_info_name(payload.distribution, payload.version)
    with tempfile.TemporaryDirectory() as scratch:
        made = _run_flit(source, Path(scratch))
        if made.name != payload.wheel_name:
            raise BuildError("the payload's wheel has another name", expected=payload.wheel_name, found=made.name)
        with zipfile.ZipFile(made) as archive:
            contents = [member for member in wheels.members(archive) if member.name != f"{dist_info}/RECORD"]
            wheels.write(target, contents, dist_info)


def _run_flit(source: Path, folder: Path) -> Path:
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = _EPOCH
    try:
        return Path(make_wheel_in(source / "pyproject.toml", folder).file)
    finally:
        if before is None:
            del os.environ["SOURCE_DATE_EPOCH"]
        else:
            os.environ["SOURCE_DATE_EPOCH"] = before
