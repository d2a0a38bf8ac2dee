"""Git sources at full revisions: fetched or taken from a checkout, verified, and copied for a build.

stack.toml's `[sources.NAME]` -> `obtain` -> a `Checkout` in `.cache/git/` -> `place` -> a build's own work copy.
Knows nothing of recipes, of `dist/` or of environments.
"""

from scripts.gitsource.checkout import Checkout, Submodule
from scripts.gitsource.obtaining import obtain
from scripts.gitsource.placing import place

__all__ = ["Checkout", "Submodule", "obtain", "place"]
