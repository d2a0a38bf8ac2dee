"""What a stack builds from source, as products: fetched and compiled only when there is something to make.

A plan and its key come from the stack file and the machine's tools alone. A checkout that the caller gives with
`--allow-dirty` is looked at first: what lies there is part of its key.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from scripts import gitsource, jobs, recipes
from scripts.cache import Made
from scripts.console import Console
from scripts.errors import UsageError
from scripts.gitsource import Checkout
from scripts.layout import Layout
from scripts.manifest import NestedRevision, SourceRevision, Submodule
from scripts.options import Choices
from scripts.publish import publishing
from scripts.recipes import BuiltFile, NestedState, RecipeName, RecipePlan, SourceFacts
from scripts.requirements_file import normalised
from scripts.stackfile import Stack


@dataclass
class Workshop:
    """What the products of one build share: the sources, each obtained once, and the machine's tools."""

    layout: Layout
    stack: Stack
    choices: Choices
    _checkouts: dict[str, Checkout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(self.choices.sources.keys() - self.used)
        if unknown:
            raise UsageError(
                f"the stack {self.stack.name} builds nothing from a source named {unknown[0]!r}",
                expected=" or ".join(sorted(self.used)),
                found=unknown[0],
                hint=f"leave out --source {unknown[0]}=…",
            )

    @property
    def used(self) -> frozenset[str]:
        """The sources that something is built from; any other is only recorded."""
        return frozenset(recipes.source_of(name, self.stack) for name in recipes.RECIPES)

    @cached_property
    def toolchain(self) -> recipes.Toolchain:
        return recipes.find(self.layout, self.stack, os.environ)

    def products(self) -> tuple[SourceProduct, ...]:
        return tuple(SourceProduct(self, name) for name in recipes.RECIPES)

    def plan(self, name: RecipeName) -> RecipePlan:
        facts = recipes.facts(self.stack)
        facts |= {each: SourceFacts.fetched(checkout) for each, checkout in self._checkouts.items()}
        return recipes.plan(
            name,
            self.stack,
            facts,
            work=recipes.work_folder(self.layout, name),
            toolchain=self.toolchain,
            jobs=recipes.jobs(name, self.stack, jobs.available(), self.choices.jobs),
        )

    def obtain(self, name: str, console: Console) -> Checkout:
        """A source, verified; fetched unless it is there."""
        if name not in self._checkouts:
            self._checkouts[name] = gitsource.obtain(
                self.layout,
                name,
                self.stack.sources[name],
                console,
                given=self.choices.sources.get(name),
                allow_dirty=self.choices.allow_dirty,
                tags=name in recipes.versioned_by_tags(self.stack),
            )
        return self._checkouts[name]

    def verify_given(self, console: Console) -> None:
        """Hold what the caller gave to the stack file, also when nothing has to be built from it."""
        for name in self.choices.sources:
            self.obtain(name, console)

    def revisions(self, console: Console | None) -> list[SourceRevision]:
        """Every source of the stack file, as the manifest says it. Without a console nothing is fetched for it."""
        if console is not None:
            for name in sorted(self.used):
                self.obtain(name, console)
        nested: dict[str, list[NestedRevision]] = {name: [] for name in sorted(self.stack.sources)}
        for recipe in recipes.RECIPES:
            found = nested[recipes.source_of(recipe, self.stack)]
            found += [each for each in map(_nested, self.plan(recipe).nested) if each not in found]
        return [self._revision(name, found) for name, found in nested.items()]

    def _revision(self, name: str, nested: list[NestedRevision]) -> SourceRevision:
        pinned, checkout = self.stack.sources[name], self._checkouts.get(name)
        if checkout is None:
            return SourceRevision(name=name, repository=pinned.repository, revision=pinned.revision, nested=nested)
        return SourceRevision(
            name=name,
            repository=checkout.repository,
            revision=checkout.revision,
            tree=checkout.tree,
            dirty=checkout.dirty,
            described=checkout.described,
            submodules=[Submodule(path=each.path, revision=each.revision) for each in checkout.submodules],
            nested=nested,
        )


@dataclass(frozen=True)
class SourceProduct:
    """What one recipe makes."""

    workshop: Workshop
    name: RecipeName

    @property
    def key(self) -> str:
        return recipes.key(self.workshop.plan(self.name))

    @property
    def tools(self) -> dict[str, str]:
        return dict(self.workshop.plan(self.name).tools)

    @property
    def title(self) -> str:
        return f"build {self.name}"

    def plan(self, *, force: bool = False) -> list[str]:
        plan = self._plan
        return self._would(plan, kept=not force and recipes.is_kept(plan, self.workshop.layout))

    def explain(self) -> dict[str, Any]:
        plan = self._plan
        kept = recipes.is_kept(plan, self.workshop.layout)
        return {"would": self._would(plan, kept=kept), "kept": kept, **recipes.document(plan)}

    def _would(self, plan: RecipePlan, *, kept: bool) -> list[str]:
        verify = f"verify {plan.source.name} at {plan.source.revision}, fetched unless it is there"
        if kept:
            return [verify, f"{self.name}: take what is kept under its key"]
        return [verify, *(f"{self.name}: {step.name}" for step in plan.steps)]

    def make(self, console: Console, *, force: bool) -> list[Made]:
        workshop = self.workshop
        recipes.check(workshop.stack, self.name, workshop.toolchain)
        source = workshop.obtain(recipes.source_of(self.name, workshop.stack), console)
        built = recipes.run(self._plan, {source.name: source}, workshop.layout, console, force=force)
        return [self._put(path, file) for path, file in built.files.items()]

    def _put(self, path: Path, file: BuiltFile) -> Made:
        """Copy a product into `dist`: the kept one must stay whole, whatever is done to the other."""
        with publishing(self.workshop.layout.dist / file.file) as partial:
            shutil.copyfile(path, partial)
            partial.chmod(0o755 if file.kind == "binary" else 0o644)
        return Made(normalised(file.name), file.version, file.file, kind=file.kind)

    @property
    def _plan(self) -> RecipePlan:
        return self.workshop.plan(self.name)


def _nested(state: NestedState) -> NestedRevision:
    return NestedRevision(
        name=state.name, repository=state.repository, revision=state.revision, floating=state.floating
    )
