"""All that a build of a stack starts from: its stack file, its lock, and the products that they lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scripts import pins, requirements_file
from scripts.console import Console
from scripts.digests import file_sha256, json_sha256
from scripts.errors import UsageError
from scripts.layout import Layout
from scripts.options import NO_CHOICES, Choices
from scripts.products import AssembledEngine, PayloadWheel, Product, recipe_sha256
from scripts.provenance import facts
from scripts.requirements_file import Locked
from scripts.source_products import Workshop
from scripts.stackfile import Stack

_MANIFEST_RECIPE = ("build.py", "build_inputs.py", "executables.py", "manifest.py", "sums.py")


@dataclass(frozen=True)
class Inputs:
    """All that a build reads. `products` in the order in which they are made."""

    stack: Stack
    locked: dict[str, Locked]
    lock_sha256: str
    documents_sha256: str
    products: tuple[Product, ...]
    workshop: Workshop | None = None

    @property
    def digest(self) -> str:
        """One digest over everything: `inputs` of the manifest."""
        return json_sha256(
            {
                "stack": self.stack.model_dump(by_alias=True),
                "lock": self.lock_sha256,
                "products": {product.name: product.key for product in self.products},
                "documents": self.documents_sha256,
                "recipe": recipe_sha256(_MANIFEST_RECIPE),
            }
        )


def read_inputs(layout: Layout, choices: Choices = NO_CHOICES, console: Console | None = None) -> Inputs:
    """Read and check everything that a build starts from. Raises `PinError`, `BuildError` or `UsageError`.

    Without a console, as for a dry run, a checkout that the caller gave is not looked at.
    """
    stack = pins.load(layout.stack_file)
    locked = requirements_file.read(layout.lock)
    pins.check_lock(stack, locked, layout.lock)
    workshop = None if stack.recipes is None else Workshop(layout, stack, choices)
    if workshop is None:
        _refuse(choices, stack)
    elif console is not None and choices.allow_dirty:
        # What has changed in it is part of its products' keys.
        workshop.verify_given(console)
    return Inputs(
        stack=stack,
        locked=locked,
        lock_sha256=file_sha256(layout.lock),
        documents_sha256=facts.inputs_sha256(layout),
        products=(*_engine_products(layout, stack, workshop), PayloadWheel.of(layout)),
        workshop=workshop,
    )


def _engine_products(layout: Layout, stack: Stack, workshop: Workshop | None) -> tuple[Product, ...]:
    if stack.engine is not None:
        return (AssembledEngine(layout, stack.engine),)
    return () if workshop is None else workshop.products()


def _refuse(choices: Choices, stack: Stack) -> None:
    if replace(choices, ignored_checks=()) != NO_CHOICES:
        raise UsageError(
            f"the stack {stack.name} builds nothing from source",
            expected="no --source, --allow-dirty or --jobs",
            found=", ".join(_given(choices)),
            hint=f"leave out {' '.join(_given(choices))}, or name a stack that is built from source with --stack",
        )


def _given(choices: Choices) -> list[str]:
    sources = [f"--source {name}={path}" for name, path in choices.sources.items()]
    dirty = ["--allow-dirty"] if choices.allow_dirty else []
    jobs = [] if choices.jobs is None else [f"--jobs {choices.jobs}"]
    return [*sources, *dirty, *jobs]
