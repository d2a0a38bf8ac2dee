"""A project with nothing in it but what `clean` looks at."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from synthetic import Project

from scripts.layout import Layout


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with its build plane, for the tests that run or build something in it."""
    return synthetic.project(tmp_path_factory.mktemp("whole") / "project")


@pytest.fixture
def project(whole: Project, tmp_path: Path) -> Project:
    """A project's stack file and fetched wheels, without the build plane: nothing else is looked at."""
    root = tmp_path / "project"
    shutil.copytree(whole.root / "stacks", root / "stacks")
    shutil.copytree(whole.layout.sources, root / ".cache" / "sources")
    return replace(whole, root=root, layout=Layout(root, "mini"))
