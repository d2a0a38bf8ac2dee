"""A work copy of a source: of its own, the same for everybody, and with a git that sees only it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import upstream
from upstream import EPOCH, Upstream, git, pinned

from scripts.console import Console
from scripts.errors import BuildError
from scripts.gitsource import obtain, place
from scripts.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A project that is a repository itself, as ours is."""
    project = Upstream.make(tmp_path / "the project", {"README": "x"})
    project.tag("v0.0.1-of-the-project")
    return Layout(project.folder, "test")


@pytest.fixture
def target(layout: Layout) -> Path:
    return layout.cache / "compile" / "test" / "vllm"


def files(folder: Path) -> list[Path]:
    """Working files, links and folders."""
    return [path for path in [folder, *folder.rglob("*")] if ".git" not in path.relative_to(folder).parts]


def test_it_shares_no_file_with_the_cache(layout: Layout, vllm: Upstream, target: Path, console: Console) -> None:
    source = obtain(layout, "vllm", pinned(vllm), console)
    before = upstream.snapshot(source.path)
    place(source, target)
    cached = {path.stat().st_ino for path in source.path.rglob("*") if path.is_file()}
    assert not cached & {path.stat().st_ino for path in target.rglob("*") if path.is_file()}
    for path in files(target):
        if path.is_file():
            path.write_text("a build was here\n")
    assert upstream.snapshot(source.path) == before


def test_modes_and_times_depend_on_the_revision_alone(
    layout: Layout, tmp_path: Path, target: Path, console: Console
) -> None:
    source = Upstream.make(tmp_path / "up", {"src/run.sh": "#!/bin/sh\n", "src/main.c": ""})
    (source.folder / "src" / "run.sh").chmod(0o755)
    (source.folder / "link").symlink_to("src/run.sh")
    revision = source.commit({})
    former = os.umask(0o077)
    try:
        place(obtain(layout, "vllm", pinned(source, revision), console), target)
    finally:
        os.umask(former)
    found = {str(path.relative_to(target)): path.lstat() for path in files(target)}
    assert {name: oct(status.st_mode & 0o777) for name, status in found.items()} == {
        ".": "0o755",
        "link": "0o777",
        "src": "0o755",
        "src/main.c": "0o644",
        "src/run.sh": "0o755",
    }
    assert {status.st_mtime_ns for status in found.values()} == {EPOCH * 10**9}


def test_git_sees_the_source_there_and_not_the_project_above(
    layout: Layout, nest: Upstream, target: Path, console: Console
) -> None:
    place(obtain(layout, "vllm", pinned(nest, version=None), console), target)
    # First, as other commands bring the index up to date: version scripts look only at what it says.
    assert git(target, "diff-index", "HEAD") == ""
    assert git(target, "rev-parse", "HEAD") == nest.head
    assert git(target, "rev-parse", "--show-toplevel") == str(target)
    assert git(target, "describe", "--tags", "--long", "--dirty") == f"v2.0.0-0-g{nest.head[:12]}"
    assert git(target, "status", "--porcelain", "--ignored") == ""
    assert git(target, "submodule", "status", "--recursive").count("\n") == 1
    assert git(target / "third_party" / "middle", "rev-parse", "--show-toplevel").endswith("third_party/middle")


def test_a_source_without_history_has_a_repository_there_too(
    layout: Layout, vllm: Upstream, target: Path, console: Console
) -> None:
    place(obtain(layout, "vllm", pinned(vllm), console), target)
    assert git(target, "rev-parse", "HEAD") == vllm.head
    described = subprocess.run(["git", "describe", "--tags"], cwd=target, capture_output=True, check=False)
    assert described.returncode != 0, "the project's tag is not the source's"


def test_what_lay_there_is_replaced(layout: Layout, vllm: Upstream, target: Path, console: Console) -> None:
    source = obtain(layout, "vllm", pinned(vllm), console)
    place(source, target)
    (target / "left-over.o").touch()
    (target / "run.sh").write_text("patched by a build\n")
    place(source, target)
    assert not (target / "left-over.o").exists()
    assert (target / "run.sh").read_text() == "#!/bin/sh\n"


def test_a_source_that_was_changed_since_it_was_obtained_is_not_built(
    layout: Layout, vllm: Upstream, target: Path, console: Console
) -> None:
    source = obtain(layout, "vllm", pinned(vllm), console)
    (source.path / "run.sh").write_text("2\n")
    with pytest.raises(BuildError, match=f"the working files are not those of {vllm.head}") as caught:
        place(source, target)
    assert "changed: run.sh" in (caught.value.found or "")
    assert not target.exists()


def test_a_dirty_source_is_placed_as_it_was_copied_and_git_says_that_it_is_dirty(
    layout: Layout, vllm: Upstream, tmp_path: Path, target: Path, console: Console
) -> None:
    clone = vllm.clone(tmp_path / "clone")
    (clone / "run.sh").write_text("2\n")
    source = obtain(layout, "vllm", pinned(vllm, version=None), console, given=clone, allow_dirty=True)
    place(source, target)
    assert (target / "run.sh").read_text() == "2\n"
    assert git(target, "describe", "--tags", "--dirty").endswith("-dirty")
    (source.path / "run.sh").write_text("3\n")
    with pytest.raises(BuildError, match="is not what it was when it was fetched") as caught:
        place(source, target)
    assert caught.value.expected == source.tree
