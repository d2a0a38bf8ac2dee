"""`--source NAME=PATH`: a checkout or mirror on this machine, verified just the same, and never changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import upstream
from upstream import Upstream, git, in_the_cache, pinned, said

from scripts.console import Console
from scripts.errors import BuildError, UsageError
from scripts.gitsource import git as git_module
from scripts.gitsource import obtain, place
from scripts.layout import Layout
from scripts.stackfile import GitSource

DEEP = Path("third_party", "middle", "below", "deep")


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    made = tmp_path / "a clone"
    shutil.copytree(cloned, made, symlinks=True)
    (made / "build").mkdir()
    (made / "build" / "ignored.o").touch()
    return made


@pytest.fixture(scope="module")
def cloned_plain(tmp_path_factory: pytest.TempPathFactory, vllm: Upstream) -> Path:
    """A clone of a source without submodules; only to be copied."""
    return vllm.clone(tmp_path_factory.mktemp("cloned") / "plain")


@pytest.fixture
def plain(tmp_path: Path, cloned_plain: Path) -> Path:
    """The same in a folder of the test's own, with something built in it."""
    made = tmp_path / "clone"
    shutil.copytree(cloned_plain, made, symlinks=True)
    (made / "build").mkdir()
    (made / "build" / "ignored.o").touch()
    return made


@pytest.fixture
def source(nest: Upstream) -> GitSource:
    """The source as a stack file has it, at an address where nobody answers."""
    nowhere = nest.folder.with_name("nowhere")
    return GitSource(repository=nowhere.as_uri(), revision=nest.head, version="2.0.0")


@pytest.mark.parametrize("version", ["2.0.0", None])
def test_a_checkout_is_taken_from_there_and_not_touched(
    layout: Layout, nest: Upstream, source: GitSource, clone: Path, console: Console, *, version: str | None
) -> None:
    before = upstream.snapshot(clone)
    found = obtain(layout, "vllm", source.model_copy(update={"version": version}), console, given=clone)
    assert (found.repository, found.revision, found.dirty) == (source.repository, nest.head, False)
    assert found.tree == git(nest.folder, "rev-parse", "HEAD^{tree}")
    assert found.described == (None if version else f"v2.0.0-0-g{nest.head}")
    assert (found.path / DEEP).read_text() == "1\n"
    assert not (found.path / "build").exists(), "what git ignores there stays there"
    assert upstream.snapshot(clone) == before


def test_a_linked_worktree_is_a_checkout_like_another(
    layout: Layout, vllm: Upstream, plain: Path, tmp_path: Path, console: Console
) -> None:
    git(plain, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"), vllm.head)
    assert obtain(layout, "vllm", pinned(vllm), console, given=tmp_path / "linked").revision == vllm.head


def test_a_mirror_serves_any_revision_that_it_has_and_submodules_come_from_their_addresses(
    layout: Layout, nest: Upstream, tmp_path: Path, console: Console
) -> None:
    mirror = tmp_path / "mirror.git"
    git(nest.folder, "clone", "--quiet", "--mirror", nest.address, str(mirror))
    before = upstream.snapshot(mirror)
    found = obtain(layout, "vllm", pinned(nest, version=None), console, given=mirror)
    assert (found.path / DEEP).read_text() == "1\n"
    assert found.described == f"v2.0.0-0-g{nest.head}"
    assert upstream.snapshot(mirror) == before


def test_a_checkout_at_another_revision_is_refused_with_both_in_full(
    layout: Layout, vllm: Upstream, plain: Path, console: Console
) -> None:
    former = git(plain, "rev-parse", "HEAD~1")
    with pytest.raises(BuildError, match="is at another revision") as caught:
        obtain(layout, "vllm", pinned(vllm, former), console, given=plain)
    assert (caught.value.expected, caught.value.found) == (former, vllm.head)
    assert caught.value.hint == f"git -C {plain} checkout --detach {former}"


@pytest.mark.parametrize("options", [(), ("--mirror",)])
def test_one_that_does_not_have_the_revision_is_refused(
    layout: Layout, vllm: Upstream, tmp_path: Path, console: Console, options: tuple[str, ...]
) -> None:
    clone = vllm.clone(tmp_path / "clone", *options)
    absent = "1" * 40
    with pytest.raises(BuildError, match="does not have the revision") as caught:
        obtain(layout, "vllm", pinned(vllm, absent), console, given=clone)
    assert caught.value.expected == absent
    assert vllm.head in (caught.value.found or "")


@pytest.mark.parametrize("inside", ["", "src", ".git"])
def test_a_folder_that_is_no_checkout_is_the_callers_mistake(
    layout: Layout, vllm: Upstream, tmp_path: Path, console: Console, *, inside: str
) -> None:
    path = vllm.folder / inside if inside else tmp_path / "nothing"
    with pytest.raises(UsageError, match="--source names ") as caught:
        obtain(layout, "vllm", pinned(vllm), console, given=path)
    assert caught.value.found == str(path)


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


@pytest.mark.parametrize("allow_dirty", [False, True])
def test_submodules_that_are_missing_are_named(
    layout: Layout, nest: Upstream, source: GitSource, tmp_path: Path, console: Console, *, allow_dirty: bool
) -> None:
    clone = tmp_path / "clone"
    git(nest.folder, "clone", "--quiet", nest.address, str(clone))
    with pytest.raises(BuildError, match="lacks submodules") as caught:
        obtain(layout, "vllm", source, console, given=clone, allow_dirty=allow_dirty)
    recorded = git(nest.folder, "rev-parse", "HEAD:third_party/middle")
    assert f"third_party/middle at {recorded}" in (caught.value.found or "")
    assert caught.value.hint == f"git -C {clone} submodule update --init --recursive"


@pytest.mark.parametrize("allow_dirty", [False, True])
def test_a_submodule_at_another_revision_is_refused_with_both_in_full(
    layout: Layout, nest: Upstream, source: GitSource, clone: Path, console: Console, *, allow_dirty: bool
) -> None:
    middle = clone / "third_party" / "middle"
    recorded = git(middle, "rev-parse", "HEAD")
    git(middle, "checkout", "--quiet", "HEAD~1")
    with pytest.raises(BuildError, match="third_party/middle is at another revision") as caught:
        obtain(layout, "vllm", source, console, given=clone, allow_dirty=allow_dirty)
    assert (caught.value.expected, caught.value.found) == (recorded, git(middle, "rev-parse", "HEAD"))


def shallow(source: Upstream, folder: Path, depth: int, *options: str) -> Path:
    git(source.folder, "clone", "--quiet", f"--depth={depth}", *options, source.address, str(folder))
    return folder


@pytest.mark.parametrize(
    ("depth", "tag", "found"),
    [
        (1, None, "a shallow clone: its history ends early, with no such tag in it"),
        (2, "v1.3.0", "a shallow clone: its history ends early, so that the commits since v1.3.0 cannot be counted"),
    ],
)
def test_a_shallow_clone_is_refused_when_the_version_comes_from_tags(
    layout: Layout, vllm: Upstream, tmp_path: Path, console: Console, *, depth: int, tag: str | None, found: str
) -> None:
    clone = shallow(vllm, tmp_path / "clone", depth, "--no-tags")
    if tag is not None:
        git(clone, "tag", tag, "HEAD~1")
    with pytest.raises(BuildError, match="the version of vllm has to come from tags") as caught:
        obtain(layout, "vllm", pinned(vllm, version=None), console, given=clone)
    assert caught.value.found == found
    assert vllm.head in (caught.value.expected or "")
    assert (caught.value.hint or "").startswith(f"git -C {clone} fetch --unshallow --tags")


def test_a_shallow_clone_is_enough_when_the_version_is_pinned(
    layout: Layout, vllm: Upstream, tmp_path: Path, console: Console
) -> None:
    clone = shallow(vllm, tmp_path / "clone", 1)
    assert obtain(layout, "vllm", pinned(vllm), console, given=clone).version == "1.2.0"


def test_a_shallow_clone_of_a_tagged_revision_is_enough(layout: Layout, tmp_path: Path, console: Console) -> None:
    source = Upstream.make(tmp_path / "up", {"a": "1\n"})
    source.commit({"a": "2\n"})
    source.tag("v2.0.0")
    clone = shallow(source, tmp_path / "clone", 1, "--branch", "v2.0.0")
    found = obtain(layout, "vllm", pinned(source, version=None), console, given=clone)
    assert found.described == f"v2.0.0-0-g{source.head}"
    place(found, tmp_path / "work")
    assert git(tmp_path / "work", "describe", "--tags") == "v2.0.0"


def test_a_full_clone_without_tags_is_told_to_fetch_them(
    layout: Layout, vllm: Upstream, tmp_path: Path, console: Console
) -> None:
    clone = vllm.clone(tmp_path / "clone", "--no-tags")
    with pytest.raises(BuildError, match="the version of vllm has to come from tags") as caught:
        obtain(layout, "vllm", pinned(vllm, version=None), console, given=clone)
    assert caught.value.found == "no such tag in its history"
    assert (caught.value.hint or "").startswith(f"git -C {clone} fetch --tags")


def test_tags_that_give_another_version_than_those_in_the_cache_are_not_passed_over(
    layout: Layout, vllm: Upstream, plain: Path, console: Console
) -> None:
    source = pinned(vllm, version=None)
    obtain(layout, "vllm", source, console)
    git(plain, "tag", "v7.0.0")
    with pytest.raises(BuildError, match="another version than those fetched before") as caught:
        obtain(layout, "vllm", source, console, given=plain)
    assert (caught.value.expected, caught.value.found) == (f"v1.2.0-2-g{vllm.head}", f"v7.0.0-0-g{vllm.head}")


def test_a_checkout_of_another_user_is_told_what_to_type_and_then_taken(
    layout: Layout, vllm: Upstream, plain: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    fixed = {**git_module._FIXED, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    monkeypatch.setattr(git_module, "_FIXED", fixed)
    with pytest.raises(BuildError, match="belongs to another user") as caught:
        obtain(layout, "vllm", pinned(vllm), console, given=plain)
    assert caught.value.hint == f"git config --global --add safe.directory {plain}"
    # What is typed goes into the configuration that the fixture has put in the global one's place.
    with Path(os.environ["GIT_CONFIG_GLOBAL"]).open("a") as configuration:
        configuration.write(f"[safe]\n\tdirectory = {plain}\n")
    assert obtain(layout, "vllm", pinned(vllm), console, given=plain).revision == vllm.head


def test_a_partial_clone_that_lacks_files_is_said_to_be_one(
    layout: Layout, vllm: Upstream, tmp_path: Path, console: Console
) -> None:
    git(vllm.folder, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial.git"
    git(vllm.folder, "clone", "--quiet", "--bare", "--filter=blob:none", vllm.address, str(partial))
    with pytest.raises(BuildError, match="the repository is a partial clone and lacks some of the objects") as caught:
        obtain(layout, "vllm", pinned(vllm), console, given=partial)
    assert str(partial) in (caught.value.hint or "")
    assert in_the_cache(layout) == []
