"""What a fetched source is known by. Data only; imports nothing of the project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Submodule:
    """One submodule at the revision that the source records for it; `path` is relative to the source's root."""

    path: str
    revision: str


@dataclass(frozen=True)
class Checkout:
    """One source in the cache, verified when this was made.

    `tree` is git's hash of what is there: for a clean one the revision's own tree, for a dirty one that of the files as
    they were copied, with those of submodules in their places. `epoch` is when the revision was committed, in seconds.

    `version` is the pinned one. Without it the version comes from the tags: `described` is what `git describe --tags
    --long` says of them (`v1.2.0-14-g` and the full revision), and the project's own setuptools-scm, asked in a work
    copy, makes the version from the same tags by its own rules. A nested source has neither: nobody asks for one.
    """

    name: str
    repository: str
    revision: str
    tree: str
    epoch: int
    version: str | None
    dirty: bool
    submodules: tuple[Submodule, ...]
    path: Path
    nested: Mapping[str, Checkout] = field(default_factory=dict)
    described: str | None = None
