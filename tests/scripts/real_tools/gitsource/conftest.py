"""Repositories to fetch from and checkouts of them, each test with a cache and a git configuration of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import upstream
from upstream import Upstream

from scripts.layout import Layout
from scripts.stackfile import GitSource


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The global configuration of git, for the test to write."""
    upstream.isolate(monkeypatch, tmp_path / "gitconfig")
    return tmp_path / "gitconfig"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "the project", "test")


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return upstream.simple(tmp_path_factory.mktemp("up") / "vllm")


@pytest.fixture(scope="module")
def nest(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return upstream.with_submodules(tmp_path_factory.mktemp("nest"))


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory, nest: Upstream) -> Path:
    """A clone with its submodules; only to be copied."""
    return nest.clone(tmp_path_factory.mktemp("cloned") / "clone")


@pytest.fixture
def clone(tmp_path: Path, cloned: Path) -> Path:
    """The same in a folder of the test's own, with a space in its path, and something built in it."""
    return _built(cloned, tmp_path / "a clone")


@pytest.fixture(scope="module")
def cloned_plain(tmp_path_factory: pytest.TempPathFactory, vllm: Upstream) -> Path:
    """A clone of a source without submodules; only to be copied."""
    return vllm.clone(tmp_path_factory.mktemp("cloned") / "plain")


@pytest.fixture
def plain(tmp_path: Path, cloned_plain: Path) -> Path:
    """The same in a folder of the test's own, with something built in it."""
    return _built(cloned_plain, tmp_path / "clone")


@pytest.fixture
def source(nest: Upstream) -> GitSource:
    """The source as a stack file has it, at an address where nobody answers."""
    nowhere = nest.folder.with_name("nowhere")
    return GitSource(repository=nowhere.as_uri(), revision=nest.head, version="2.0.0")


def _built(clone: Path, folder: Path) -> Path:
    """A copy of the clone in that folder, with something built in it."""
    shutil.copytree(clone, folder, symlinks=True)
    (folder / "build").mkdir()
    (folder / "build" / "ignored.o").touch()
    return folder
