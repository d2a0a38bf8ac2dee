"""Recipes: what is built from source, as data (`plan`), by content (`key`), and for real (`run`).

    stack.toml + sources + the machine's tools -> plan -> steps in .cache/compile/STACK/RECIPE/ -> .cache/built/KEY/

`plan` and `key` are pure. Only `run` compiles; only `toolchain.find` asks the machine. Knows nothing of `dist/`, of
manifests or of the run plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from scripts.jobs import Jobs, Resources, choose
from scripts.layout import Layout
from scripts.recipes import dynamo, nested, sidecar, vllm
from scripts.recipes.execution import Made, is_kept, run
from scripts.recipes.keys import key, parts
from scripts.recipes.requirements import check, lacking
from scripts.recipes.showing import document, lines
from scripts.recipes.steps import NestedState, Product, RecipePlan, SourceFacts, Step
from scripts.recipes.store import BuiltFile
from scripts.recipes.toolchain import Toolchain, find
from scripts.recipes.workplace import Workplace
from scripts.stackfile import Stack

__all__ = [
    "RECIPES",
    "BuiltFile",
    "Jobs",
    "Made",
    "NestedState",
    "Product",
    "RecipeName",
    "RecipePlan",
    "SourceFacts",
    "Step",
    "Toolchain",
    "check",
    "document",
    "facts",
    "find",
    "is_kept",
    "jobs",
    "key",
    "lacking",
    "lines",
    "nested",
    "parts",
    "plan",
    "run",
    "source_of",
    "versioned_by_tags",
    "work_folder",
]

RecipeName = Literal["vllm", "dynamo", "sidecar"]
RECIPES: tuple[RecipeName, ...] = ("vllm", "dynamo", "sidecar")

_KIND = {"cuda": "cuda", "cpu": "c++", "empty": "rust"}


def plan(
    name: RecipeName,
    stack: Stack,
    sources: Mapping[str, SourceFacts],
    *,
    work: Path,
    toolchain: Toolchain,
    jobs: Jobs,
) -> RecipePlan:
    """What one recipe would do in the folder `work`. Looks at nothing but its arguments."""
    recipes = stack.recipes
    if recipes is None:
        raise ValueError(f"the stack {stack.name} builds nothing from source")
    place = Workplace(name, stack, sources[source_of(name, stack)], work, toolchain, jobs)
    if name == "vllm":
        return vllm.plan(place, recipes.vllm, stack.sources[recipes.vllm.source].version)
    if name == "dynamo":
        return dynamo.plan(place, recipes.dynamo)
    return sidecar.plan(place)


def source_of(name: RecipeName, stack: Stack) -> str:
    """The source that a recipe builds."""
    if stack.recipes is None:
        raise ValueError(f"the stack {stack.name} builds nothing from source")
    source: str = getattr(stack.recipes, name).source
    return source


def versioned_by_tags(stack: Stack) -> frozenset[str]:
    """The sources whose version setuptools-scm makes, unless the stack file pins it; the others write theirs down."""
    return frozenset({source_of("vllm", stack)})


def facts(stack: Stack) -> dict[str, SourceFacts]:
    """What the stack file alone says of its sources: enough for a plan and its key."""
    return {name: SourceFacts.pinned(name, source) for name, source in stack.sources.items()}


def jobs(name: RecipeName, stack: Stack, resources: Resources, override: int | None = None) -> Jobs:
    """How many compilers a recipe may use on a machine with these resources."""
    if name != "vllm" or stack.recipes is None:
        return choose(resources, kind="rust", override=override)
    recipe = stack.recipes.vllm
    return choose(resources, kind=_KIND[recipe.device], gpu_archs=len(recipe.cuda_archs), override=override)


def work_folder(layout: Layout, name: RecipeName) -> Path:
    """Where a recipe works; emptied before each build."""
    return layout.cache / "compile" / layout.stack / name
