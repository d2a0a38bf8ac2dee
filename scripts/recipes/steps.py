"""What a recipe is made of: steps, as frozen data. Nothing here runs anything or looks at the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from scripts.gitsource import Checkout
from scripts.jobs import Jobs
from scripts.stackfile import GitSource

FIRST_OF = "*"
"""An argument with it names the one file that matches; there must be exactly one when the step starts."""


@dataclass(frozen=True)
class SourceFacts:
    """What a plan knows of a source, wherever it lies.

    Before it is fetched only what the stack file says is known; `tree`, `epoch` and `version` are then None.
    """

    name: str
    repository: str
    revision: str
    tree: str | None = None
    epoch: int | None = None
    version: str | None = None
    dirty: bool = False
    nested: Mapping[str, SourceFacts] = field(default_factory=dict)

    @classmethod
    def pinned(cls, name: str, source: GitSource) -> SourceFacts:
        """A source as the stack file names it."""
        nested: dict[str, SourceFacts] = {
            each: cls(each, pin.repository, pin.revision) for each, pin in source.nested.items()
        }
        return cls(name, source.repository, source.revision, version=source.version, nested=nested)

    @classmethod
    def fetched(cls, checkout: Checkout) -> SourceFacts:
        """A source that lies in the cache."""
        return cls(
            name=checkout.name,
            repository=checkout.repository,
            revision=checkout.revision,
            tree=checkout.tree,
            epoch=checkout.epoch,
            version=checkout.version,
            dirty=checkout.dirty,
            nested={name: cls.fetched(each) for name, each in checkout.nested.items()},
        )


@dataclass(frozen=True)
class NestedState:
    """A source that is fetched during the build of another: pinned by the stack, or floating."""

    name: str
    repository: str | None
    revision: str | None

    @property
    def floating(self) -> bool:
        return self.revision is None


@dataclass(frozen=True)
class Placement:
    """A copy of a source that is made before the first step. `nested` is None for the source itself."""

    source: str
    nested: str | None
    revision: str
    target: Path


@dataclass(frozen=True)
class Step:
    """One command. `env` is added to the plan's environment; `inputs` that are files are left as they are by it.

    After it, each of `outputs` exists and is not empty (a name with `*`: exactly one file matches).
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]


@dataclass(frozen=True)
class Product:
    """One file that a recipe makes: where the last step leaves it, and what must be in it.

    `members` of a wheel must be there and not be empty; those in `executables` must be executable, too.
    """

    name: str
    kind: Literal["wheel", "binary"]
    path: Path
    members: tuple[str, ...] = ()
    executables: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecipePlan:
    """Everything that `run` will do, and everything that the key is made of."""

    recipe: str
    stack: str
    work: Path
    source: SourceFacts
    toolchain_file: Path
    rust: str
    placements: tuple[Placement, ...]
    environment: Mapping[str, str]
    steps: tuple[Step, ...]
    products: tuple[Product, ...]
    tools: Mapping[str, str]
    platform: str
    locks: Mapping[str, str]
    nested: tuple[NestedState, ...]
    jobs: Jobs
    compiler_cache: str | None
    tokens: Mapping[str, str]
    """Paths of this machine -> what stands for them in the key."""
