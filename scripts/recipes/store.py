"""What recipes have made, by key: `.cache/built/<key>/`. A folder appears whole, and is read whole before it is used.

A file that is not what its record says is never handed out: the folder goes, and the recipe runs again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.utils import parse_wheel_filename
from pydantic import BaseModel, ConfigDict, ValidationError

from scripts.digests import file_sha256
from scripts.publish import publish_text, publishing, remove, sweep_partials
from scripts.recipes.steps import Product

RECORD = "built.json"


class BuiltFile(BaseModel):
    """One product: a wheel or a program, with the version that it has given itself (a program's: its source's)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["wheel", "binary"]
    version: str
    file: str
    sha256: str
    size: int


class Record(BaseModel):
    """`built.json` of one key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: str
    files: list[BuiltFile]


@dataclass(frozen=True)
class Store:
    """The folder of all keys."""

    folder: Path

    def path(self, key: str, file: BuiltFile) -> Path:
        return self.folder / key / file.file

    def has(self, key: str) -> bool:
        """Whether there is a record, of whatever worth: `get` reads every byte."""
        return (self.folder / key / RECORD).is_file()

    def get(self, key: str) -> list[BuiltFile] | None:
        """The files of a key, if all of them are what their record says."""
        try:
            record = Record.model_validate_json((self.folder / key / RECORD).read_text(encoding="utf-8"))
        except (FileNotFoundError, UnicodeDecodeError, ValidationError):
            return None
        whole = all(_is_whole(self.path(key, file), file) for file in record.files)
        return list(record.files) if whole and record.files else None

    def put(self, key: str, recipe: str, products: Sequence[tuple[Product, Path]], version: str) -> list[BuiltFile]:
        """Copy the files in, record them, and let the folder appear. `version` is for those that name none."""
        target = self.folder / key
        sweep_partials(self.folder)
        with publishing(target) as partial:
            partial.mkdir()
            files = [_taken(product, path, partial, version) for product, path in products]
            record = Record(recipe=recipe, files=files)
            publish_text(partial / RECORD, json.dumps(record.model_dump(), indent=1, sort_keys=True) + "\n")
            remove(target)
        return files


def _is_whole(path: Path, file: BuiltFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size and file_sha256(path) == file.sha256


def _copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)


def _taken(product: Product, path: Path, folder: Path, version: str) -> BuiltFile:
    copy = folder / path.name
    _copy(path, copy)
    copy.chmod(0o755 if product.kind == "binary" else 0o644)
    if product.kind == "wheel":
        version = str(parse_wheel_filename(path.name)[1])
    return BuiltFile(
        name=product.name,
        kind=product.kind,
        version=version,
        file=path.name,
        sha256=file_sha256(copy),
        size=copy.stat().st_size,
    )
