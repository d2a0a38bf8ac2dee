"""Projects of the fixture stack: one that is built and installed for the whole session, and fresh ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import fixture_project
import pytest
from fixture_project import Project

from tests.sources import repositories
from tests.sources.repositories import Repository


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repository]:
    """The git repositories, which no test changes."""
    return repositories.make(tmp_path_factory.mktemp("repositories") / "git", fixture_project.rust_release())


@pytest.fixture
def own_sources(tmp_path: Path) -> dict[str, Repository]:
    """The same repositories once more, for a test that commits something."""
    return repositories.make(tmp_path / "git", fixture_project.rust_release())


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, sources: Mapping[str, Repository]) -> Project:
    """A project whose stack is built and installed. Tests put back what they change."""
    made = fixture_project.make(tmp_path_factory.mktemp("installed") / "project", sources)
    made.run("install")
    return made


@pytest.fixture
def fresh(tmp_path: Path, sources: Mapping[str, Repository]) -> Project:
    """A project in which nothing has been done yet."""
    return fixture_project.make(tmp_path / "project", sources)
