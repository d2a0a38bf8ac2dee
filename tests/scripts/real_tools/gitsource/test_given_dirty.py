"""`--source NAME=PATH` of a checkout that was changed: refused with the list, or copied as it is and called dirty."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import upstream
from upstream import DEEP, Upstream, git, in_the_cache, pinned, said

from scripts.console import Console
from scripts.errors import BuildError
from scripts.gitsource import obtain
from scripts.layout import Layout
from scripts.stackfile import GitSource

CHANGES: dict[str, Callable[[Path], object]] = {
    "M run.sh": lambda clone: (clone / "run.sh").write_text("#!/bin/bash\n"),
    "M src/main.c": lambda clone: (clone / "src" / "main.c").chmod(0o755),
    "D run.sh": lambda clone: (clone / "run.sh").unlink(),
    "T run.sh": lambda clone: ((clone / "run.sh").unlink(), (clone / "run.sh").symlink_to("src")),
    "?? src/new": lambda clone: (clone / "src" / "new").touch(),
    "staged build/forced.o": lambda clone: (
        (clone / "build" / "forced.o").touch(),
        git(clone, "add", "--force", "build/forced.o"),
    ),
    "M .gitignore": lambda clone: (
        (clone / ".gitignore").write_text("*\n"),
        git(clone, "update-index", "--assume-unchanged", ".gitignore"),
    ),
}


@pytest.mark.parametrize("line", CHANGES)
def test_a_dirty_checkout_is_refused_with_the_list(
    layout: Layout, vllm: Upstream, plain: Path, console: Console, line: str
) -> None:
    CHANGES[line](plain)
    before = upstream.snapshot(plain)
    with pytest.raises(BuildError, match="is dirty") as caught:
        obtain(layout, "vllm", pinned(vllm), console, given=plain)
    assert line in (caught.value.found or "")
    assert caught.value.expected == f"exactly the files of {vllm.head}"
    assert not (layout.cache / "git").exists()
    assert upstream.snapshot(plain) == before


def test_what_git_lfs_keeps_of_files_that_it_is_shown_is_not_put_into_the_checkout(
    layout: Layout, vllm: Upstream, plain: Path, console: Console
) -> None:
    """The filter stands for Git LFS, which keeps each file that it cleans in the folder that `lfs.storage` names."""
    keep = 'storage=$(git config lfs.storage || echo .git/lfs); mkdir -p "$storage"; touch "$storage/kept"; cat'
    git(plain, "config", "filter.lfs.clean", keep)
    (plain / ".git" / "info" / "attributes").write_text("*.c filter=lfs\n")
    before = upstream.snapshot(plain)
    obtain(layout, "vllm", pinned(vllm), console, given=plain)
    assert upstream.snapshot(plain) == before


def test_what_is_changed_in_submodules_makes_a_checkout_dirty(
    layout: Layout, source: GitSource, clone: Path, console: Console
) -> None:
    (clone / DEEP).write_text("9\n")
    (clone / "third_party" / "middle" / "new").touch()
    with pytest.raises(BuildError, match="is dirty") as caught:
        obtain(layout, "vllm", source, console, given=clone)
    assert "third_party/middle/below/M deep" in (caught.value.found or "")
    assert "third_party/middle/?? new" in (caught.value.found or "")


def test_a_dirty_checkout_that_is_allowed_is_copied_as_it_is_beside_the_clean_one(
    layout: Layout, nest: Upstream, source: GitSource, clone: Path, console: Console
) -> None:
    (clone / "top").unlink()
    (clone / "new").write_text("new\n")
    (clone / "tool").symlink_to("new")
    (clone / DEEP).write_text("9\n")
    (clone / DEEP).chmod(0o755)
    before = upstream.snapshot(clone)
    found = obtain(layout, "vllm", source, console, given=clone, allow_dirty=True)
    assert upstream.snapshot(clone) == before
    assert (found.dirty, found.revision) == (True, nest.head)
    files = sorted(str(path.relative_to(found.path)) for path in found.path.rglob("*") if ".git" not in path.parts)
    assert "new" in files
    assert "top" not in files
    assert "build" not in files
    assert (found.path / "tool").readlink() == Path("new")
    assert (found.path / DEEP).read_text() == "9\n"
    assert found.tree == tree_by_git(found.path, layout.root / "scratch")
    clean = obtain(layout, "vllm", source, console)
    assert (clean.dirty, clean.tree) == (False, git(nest.folder, "rev-parse", "HEAD^{tree}"))
    assert (clean.path / "top").read_text() == "1\n"
    assert in_the_cache(layout) == [f"vllm-{nest.head}", f"vllm-{nest.head}-dirty-{found.tree}"]


def tree_by_git(folder: Path, scratch: Path) -> str:
    """What git makes of the files alone, those of submodules included."""
    shutil.copytree(folder, scratch, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    git(scratch, "init", "--quiet")
    git(scratch, "add", "--all", "--force")
    return git(scratch, "write-tree")


def test_each_state_of_a_dirty_checkout_has_a_tree_of_its_own(
    layout: Layout, vllm: Upstream, plain: Path, console: Console
) -> None:
    trees = []
    for text in ("first\n", "second\n", "first\n"):
        (plain / "new").write_text(text)
        found = obtain(layout, "vllm", pinned(vllm), console, given=plain, allow_dirty=True)
        assert (found.path / "new").read_text() == text
        trees.append(found.tree)
    assert trees[0] != trees[1]
    assert trees[0] == trees[2]
    assert f"{plain} is dirty (paths that differ: 1), and is copied as it is" in said(console)


def test_allowing_dirt_changes_nothing_for_a_clean_checkout(
    layout: Layout, vllm: Upstream, plain: Path, console: Console
) -> None:
    found = obtain(layout, "vllm", pinned(vllm), console, given=plain, allow_dirty=True)
    assert (found.dirty, found.path.name) == (False, f"vllm-{vllm.head}")


def test_a_link_that_took_the_place_of_a_folder_is_copied_and_not_followed(
    layout: Layout, tmp_path: Path, console: Console
) -> None:
    source = Upstream.make(tmp_path / "up", {"folder/file": "1\n"})
    clone = source.clone(tmp_path / "clone")
    shutil.rmtree(clone / "folder")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("not a part of it\n")
    (clone / "folder").symlink_to("../elsewhere")
    found = obtain(layout, "vllm", pinned(source), console, given=clone, allow_dirty=True)
    assert (found.path / "folder").readlink() == Path("../elsewhere")
    assert (tmp_path / "elsewhere" / "file").read_text() == "not a part of it\n"


def test_a_repository_inside_a_dirty_checkout_that_is_no_submodule_is_named(
    layout: Layout, vllm: Upstream, plain: Path, console: Console
) -> None:
    Upstream.make(plain / "experiment", {"x": "x"})
    with pytest.raises(BuildError, match="repositories inside that are not its submodules") as caught:
        obtain(layout, "vllm", pinned(vllm), console, given=plain, allow_dirty=True)
    assert "experiment" in (caught.value.found or "")
