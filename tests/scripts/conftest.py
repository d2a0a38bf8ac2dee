"""Fixtures of the build plane's tests."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import synthetic
from synthetic import Project

from scripts.console import Console


@pytest.fixture
def console() -> Console:
    """Progress that a test can read: `console.stream.getvalue()`."""
    return Console(io.StringIO())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A miniature project whose packages come from a wheelhouse and from nowhere else."""
    made = synthetic.project(tmp_path / "project")
    for name in ("UV_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_TORCH_BACKEND", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    return made
