"""Git sources at full revisions: fetched or taken from a checkout, verified, and copied for a build.

stack.toml's `[sources.NAME]` -> `obtain` -> a `Checkout` in `.cache/git/` -> `place` -> a build's own work copy.
Knows nothing of recipes, of `dist/` or of environments.
"""

from __future__ import annotations

from pathlib import Path

from scripts.console import Console
from scripts.gitsource.checkout import Checkout, Submodule
from scripts.layout import Layout
from scripts.stackfile import GitSource

__all__ = ["Checkout", "Submodule", "obtain", "place"]


def obtain(
    layout: Layout,
    name: str,
    source: GitSource,
    console: Console,
    *,
    given: Path | None = None,
    allow_dirty: bool = False,
) -> Checkout:
    """The source at its revision, verified, in the cache. Raises `BuildError` or `PinError`."""
    raise NotImplementedError


def place(checkout: Checkout, target: Path) -> None:
    """A fresh copy of a source for a build to write in."""
    raise NotImplementedError
