"""Git's tree hash, worked out without git: the same as git's for every kind of entry, and each difference named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import upstream

from scripts.errors import BuildError
from scripts.gitsource import trees
from scripts.gitsource.trees import Entry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Names that git sorts in its own way, modes, links, bytes that a filter would change, and an empty file."""
    made = tmp_path / "files"
    for name, content in {
        "a.b": b"before the folder a",
        "a/x": b"below it",
        "a0": b"after it",
        "crlf.txt": b"one\r\ntwo\r\n",
        "deep/er/and/deeper": b"\0\xff",
        "empty": b"",
        "spaced name \xc3\xa9": b"name",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o700)
    (made / "group-only").write_text("not executable to git\n")
    (made / "group-only").chmod(0o654)
    (made / "link").symlink_to("a/x")
    (made / "dangling").symlink_to("nowhere")
    (made / "folder-link").symlink_to("deep")
    return made


def test_it_is_the_hash_that_git_makes(folder: Path) -> None:
    upstream.git(folder, "init", "--quiet")
    upstream.git(folder, "add", "--all", "--force")
    assert trees.tree_id(trees.listing(folder, {})) == upstream.git(folder, "write-tree")


def test_a_name_that_is_no_text_is_hashed_as_the_bytes_that_it_is(folder: Path) -> None:
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    upstream.git(folder, "init", "--quiet")
    upstream.git(folder, "add", "--all", "--force")
    assert trees.tree_id(trees.listing(folder, {})) == upstream.git(folder, "write-tree")


def test_a_submodule_is_its_revision_and_not_what_is_in_it(folder: Path) -> None:
    repository = upstream.Upstream.make(folder / "a" / "sub", {"inside": "x"})
    upstream.git(folder, "init", "--quiet")
    upstream.git(folder, "add", "--all", "--force")
    found = trees.listing(folder, {"a/sub": repository.head})
    assert found["a/sub"] == Entry("160000", repository.head)
    assert trees.tree_id(found) == upstream.git(folder, "write-tree")


def test_a_repository_where_none_should_be_is_listed_like_everything_else(folder: Path) -> None:
    upstream.git(folder, "init", "--quiet")
    (folder / "a" / ".git").mkdir()
    (folder / "a" / ".git" / "config").touch()
    found = trees.listing(folder, {})
    assert "a/.git/config" in found
    assert not any(path.startswith(".git/") for path in found)


def test_every_kind_of_difference_is_named(folder: Path) -> None:
    before = trees.listing(folder, {})
    (folder / "a" / "x").write_text("other")
    (folder / "empty").unlink()
    (folder / "run.sh").chmod(0o600)
    (folder / "link").unlink()
    (folder / "link").symlink_to("a0")
    (folder / "new").touch()
    assert trees.differences(before, trees.listing(folder, {})) == [
        "changed: a/x",
        "missing: empty",
        "changed: link",
        "not in the revision: new",
        "mode 100644 instead of 100755: run.sh",
    ]


def test_what_git_cannot_hold_is_refused_by_its_name(folder: Path) -> None:
    os.mkfifo(folder / "a" / "pipe")
    with pytest.raises(BuildError, match="git cannot hold it") as caught:
        trees.listing(folder, {})
    assert caught.value.where == str(folder / "a" / "pipe")


def test_a_file_of_git_lfs_is_known_by_what_it_says(tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    (tmp_path / "weights.bin").write_text(pointer)
    (tmp_path / "about-lfs.md").write_text(pointer + "and more text\n" * 100)
    (tmp_path / "plain").write_text("version 1\n")
    assert trees.lfs_pointers(tmp_path, trees.listing(tmp_path, {})) == ["weights.bin"]
