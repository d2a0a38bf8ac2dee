"""`--source NAME=PATH`: a checkout or mirror on this machine, verified just the same, and never changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import upstream
from upstream import DEEP, Upstream, git, in_the_cache, pinned

from scripts.console import Console
from scripts.errors import BuildError, UsageError
from scripts.gitsource import git as git_module
from scripts.gitsource import obtain
from scripts.layout import Layout
from scripts.stackfile import GitSource


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
