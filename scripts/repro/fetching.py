"""What the builds start from is in the user's cache before the first one: nothing is fetched twice."""

from __future__ import annotations

from scripts import gitsource, sources
from scripts.console import Console
from scripts.layout import Layout
from scripts.options import Choices
from scripts.stackfile import Stack


def fetch(layout: Layout, stack: Stack, choices: Choices, console: Console) -> None:
    """Every published wheel and git source of the stack, verified. The caller holds the stack's lock."""
    if stack.engine is not None:
        for wheel in (stack.engine.base, stack.engine.donor):
            sources.fetch(layout, wheel, console)
    if stack.recipes is not None:
        for name in sorted({recipe.source for _, recipe in stack.recipes} - choices.sources.keys()):
            gitsource.obtain(layout, name, stack.sources[name], console)
