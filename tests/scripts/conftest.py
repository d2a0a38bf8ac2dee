"""Fixtures of the build plane's tests."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
import verified
from synthetic import Project

from scripts.console import Console


@pytest.fixture
def console() -> Console:
    """Progress that a test can read: `console.stream.getvalue()`."""
    return Console(io.StringIO())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A miniature project whose packages come from a wheelhouse and from nowhere else."""
    return _offline(synthetic.project(tmp_path / "project"), monkeypatch)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A miniature project with machine code, built and installed. Tests put back what they change."""
    with pytest.MonkeyPatch.context() as patch:
        made = _offline(synthetic.project(tmp_path_factory.mktemp("whole") / "project"), patch)
        yield verified.make(made, Console(io.StringIO()))


def _offline(made: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("UV_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_TORCH_BACKEND", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    return made
