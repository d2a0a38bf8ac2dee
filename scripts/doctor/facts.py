"""What a stack file says that matters to a machine.

`stackfile` reads the same file for the builds, strictly. It needs pydantic, and the doctor runs before anything is
installed: here only what a check uses is read, and what is wrong in the file is left for the build to name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SourceFacts:
    """One git source: `nested` are the sources below it that the stack file pins."""

    repository: str = ""
    revision: str = ""
    version: str | None = None
    nested: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackFacts:
    """A stack, as far as the doctor cares. `unread` says why the file's content is not known, if it is not."""

    name: str
    platform: str = "cpu"
    python: str = "3.11"
    dialect: str = ""
    torch_backend: str = "cpu"
    refit_backend: str = ""
    engine: bool = False
    """Whether the engine is assembled from published wheels."""
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Recipe name -> its table, e.g. `{"vllm": {"source": "vllm", "device": "cuda", "cuda_archs": ["9.0"]}}`."""
    sources: Mapping[str, SourceFacts] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    """`[tools]`: rust, protoc, cuda."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """`[packages]`: distribution -> version."""
    planes: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    unread: str = ""

    @property
    def from_source(self) -> bool:
        return bool(self.recipes)

    @property
    def assembled(self) -> str:
        """Why there is no need of a compiler, where that is so."""
        return f"nothing of {self.name} is compiled"

    @property
    def cuda(self) -> bool:
        return self.platform == "cuda"

    @property
    def torch_cuda(self) -> tuple[int, int] | None:
        """The CUDA release that torch was built for: `cu130` is (13, 0)."""
        digits = self.torch_backend[2:]
        if not self.torch_backend.startswith("cu") or not digits.isdecimal():
            return None
        return int(digits[:-1]), int(digits[-1])


def stack_names(root: Path) -> list[str]:
    """The stacks that there are."""
    return sorted(path.parent.name for path in (root / "stacks").glob("*/stack.toml"))


def read(root: Path, name: str) -> StackFacts:
    """The facts of `stacks/<name>/stack.toml`, which exists."""
    try:
        import tomllib  # an old Python has none, and must get as far as being told so
    except ImportError:
        return StackFacts(name, unread="this Python cannot read TOML: it is older than 3.11")
    try:
        document = tomllib.loads((root / "stacks" / name / "stack.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return StackFacts(name, unread=f"stack.toml is not TOML: {error}")
    return _facts(name, document)


def _facts(name: str, document: Mapping[str, Any]) -> StackFacts:
    sources = {key: _source(value) for key, value in _tables(document, "sources").items()}
    packages = {key: str(value.get("version", "")) for key, value in _tables(document, "packages").items()}
    return StackFacts(
        name=name,
        platform=str(document.get("platform", "cpu")),
        python=str(document.get("python", "3.11")),
        dialect=str(document.get("dialect", "")),
        torch_backend=str(document.get("torch_backend", "cpu")),
        refit_backend=str(document.get("refit_backend", "")),
        engine="engine" in document,
        recipes=_tables(document, "recipes"),
        sources=sources,
        tools=_strings(document, "tools"),
        packages=packages,
        planes=_strings(document, "planes"),
        models=tuple(_tables(document, "models")),
    )


def _source(table: Mapping[str, Any]) -> SourceFacts:
    version = table.get("version")
    return SourceFacts(
        repository=str(table.get("repository", "")),
        revision=str(table.get("revision", "")),
        version=None if version is None else str(version),
        nested=tuple(_tables(table, "nested")),
    )


def _tables(document: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = document.get(name)
    return {key: value for key, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}


def _strings(document: Mapping[str, Any], name: str) -> dict[str, str]:
    found = document.get(name)
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
