"""The doctor starts in a fresh checkout, by whatever Python there is."""

from __future__ import annotations

import ast
import sys

from scripts.layout import PROJECT_ROOT

SHARED = ("cargo_settings", "errors", "indexes", "jobs")
"""Modules of the build plane that the doctor uses, and which are held to the same."""


def test_every_module_can_be_read_by_an_old_python_and_imports_nothing_that_is_not_there() -> None:
    scripts = PROJECT_ROOT / "scripts"
    for path in [*sorted((scripts / "doctor").glob("*.py")), *(scripts / f"{name}.py" for name in SHARED)]:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in tree.body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += imported_from(node) if isinstance(node, ast.ImportFrom) else []
            foreign = [
                name
                for name in names
                if name.partition(".")[0] not in sys.stdlib_module_names - {"tomllib"}
                and name not in {f"scripts.{shared}" for shared in SHARED}
                and not name.startswith("scripts.doctor")
            ]
            assert foreign == [], path.name


def imported_from(node: ast.ImportFrom) -> list[str]:
    """The modules; of the package `scripts` itself each one that is named."""
    return [f"scripts.{each.name}" for each in node.names] if node.module == "scripts" else [node.module or ""]
