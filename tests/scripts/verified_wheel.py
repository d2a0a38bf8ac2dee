"""A wheel of ours, changed by a test, and what `verify` has to say of it."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import verified

from scripts.manifest import Artifact
from scripts.verify.contents import Contents
from scripts.verify.findings import Finding
from scripts.verify.wheel import check_wheel

INFO = "demo-1.0.dist-info"
FILES = {"demo/__init__.py": b"ONE = 1\n", "demo/_C.abi3.so": verified.KERNELS}
BUILDS = Path("/builds/of/this/machine")


NO_RULES = Contents()


def check(path: Path, rules: Contents = NO_RULES, name: str = "demo", version: str = "1.0") -> list[Finding]:
    artifact = Artifact(name=name, version=version, file=path.name, sha256="", size=0, made_from=[])
    return check_wheel(path, "demo.whl", artifact, rules, BUILDS).findings


def problems(path: Path, rules: Contents = NO_RULES) -> set[tuple[str, str]]:
    return {(finding.file.removeprefix("demo.whl: "), finding.problem) for finding in check(path, rules)}


def make(folder: Path, files: dict[str, bytes] | None = None, *, tag: str = verified.TAG) -> Path:
    return verified.wheel(folder, "demo", "1.0", FILES if files is None else files, tag=tag)


def rewritten(wheel: Path, change: Callable[[list[tuple[zipfile.ZipInfo, bytes]]], None]) -> Path:
    """The wheel with its entries changed and its RECORD as it was."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    change(entries)
    with warnings.catch_warnings(), zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        # zipfile itself warns of a name that it writes twice.
        warnings.simplefilter("ignore")
        for info, content in entries:
            archive.writestr(info, content)
    return wheel


def with_record(wheel: Path, change: Callable[[str], str]) -> Path:
    def edit(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        info, content = entries.pop()
        entries.append((info, change(content.decode()).encode()))

    return rewritten(wheel, edit)
