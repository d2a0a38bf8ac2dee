"""`--source NAME=PATH` of a source whose version comes from tags: the history it needs, or what to type to get it."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream import Upstream, git, pinned

from scripts.console import Console
from scripts.errors import BuildError
from scripts.gitsource import obtain, place
from scripts.layout import Layout


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
