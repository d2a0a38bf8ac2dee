"""The doctor starts in a fresh checkout, by whatever Python there is."""

from __future__ import annotations

import ast
import sys

from scripts.layout import PROJECT_ROOT


def test_every_module_can_be_read_by_an_old_python_and_imports_nothing_that_is_not_there() -> None:
    for path in sorted((PROJECT_ROOT / "scripts" / "doctor").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in tree.body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            foreign = [
                name
                for name in names
                if name.partition(".")[0] not in sys.stdlib_module_names - {"tomllib"}
                and name not in {"scripts", "scripts.errors", "scripts.jobs", "scripts.indexes"}
                and not name.startswith("scripts.doctor")
            ]
            assert foreign == [], path.name
