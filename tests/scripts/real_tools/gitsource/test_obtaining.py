"""A source from its repository: exactly the revision, whole or not at all, and verified whenever it is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import upstream
from upstream import EPOCH, Upstream, git, in_the_cache, pinned, said

from scripts.console import Console
from scripts.errors import BuildError, DoctorError, PinError
from scripts.gitsource import Checkout, Submodule, obtain
from scripts.layout import Layout
from scripts.stackfile import GitSource, NestedSource


def test_exactly_the_revision_is_fetched_by_its_id(layout: Layout, vllm: Upstream, console: Console) -> None:
    revision = git(vllm.folder, "rev-parse", "main~1")
    found = obtain(layout, "vllm", pinned(vllm, revision), console)
    assert found == Checkout(
        name="vllm",
        repository=vllm.address,
        revision=revision,
        tree=git(vllm.folder, "rev-parse", f"{revision}^{{tree}}"),
        epoch=EPOCH,
        version="1.2.0",
        dirty=False,
        submodules=(),
        path=layout.cache / "git" / f"vllm-{revision}",
    )
    assert (found.path / "src" / "main.c").read_text() == "int main(void) { return 1; }\n"
    assert git(found.path, "rev-parse", "HEAD") == revision
    assert git(found.path, "rev-list", "--all", "HEAD") == revision, "no history"
    assert git(found.path, "tag") == ""
    assert git(found.path, "status", "--porcelain", "--ignored") == ""


def test_without_a_pinned_version_the_history_comes_with_its_tags_and_no_others(
    layout: Layout, vllm: Upstream, console: Console
) -> None:
    found = obtain(layout, "vllm", pinned(vllm, version=None), console)
    assert (found.version, found.described) == (None, f"v1.2.0-2-g{vllm.head}")
    assert git(found.path, "tag") == "v1.2.0"
    assert len(git(found.path, "rev-list", "HEAD").splitlines()) == 3


def test_a_source_that_writes_its_version_down_needs_neither_history_nor_tags(
    layout: Layout, tmp_path: Path, console: Console
) -> None:
    made = Upstream.make(tmp_path / "up" / "made", upstream.FILES)
    made.commit({"added.txt": "more"})
    checkout = obtain(layout, "dynamo", pinned(made, version=None), console, tags=False)
    assert (checkout.version, checkout.described) == (None, None)
    assert git(checkout.path, "rev-list", "--count", "HEAD") == "1"


def test_a_version_that_would_come_from_tags_needs_one(layout: Layout, tmp_path: Path, console: Console) -> None:
    tagless = Upstream.make(tmp_path / "up" / "tagless", upstream.FILES)
    tagless.tag("nightly")  # without a number it is no version
    with pytest.raises(BuildError, match="the version of vllm has to come from tags") as caught:
        obtain(layout, "vllm", pinned(tagless, version=None), console)
    assert tagless.head in (caught.value.expected or "")
    assert caught.value.hint == "pin `version` in stack.toml"
    assert in_the_cache(layout) == []


def test_submodules_come_at_the_recorded_revisions_however_deep(
    layout: Layout, nest: Upstream, console: Console
) -> None:
    found = obtain(layout, "vllm", pinned(nest), console)
    middle = git(nest.folder, "rev-parse", "HEAD:third_party/middle")
    inner = git(nest.folder / "third_party" / "middle", "rev-parse", "HEAD:below")
    assert found.submodules == (Submodule("third_party/middle", middle), Submodule("third_party/middle/below", inner))
    assert (found.path / "third_party" / "middle" / "below" / "deep").read_text() == "1\n"
    assert git(found.path, "status", "--porcelain", "--ignored") == ""
    assert git(found.path, "submodule", "status", "--recursive").count("\n") == 1


@pytest.mark.parametrize("revision", ["e74fc3f", "E74FC3F1B06258E25519A5D5ED4D9A1B05D9A1CB", "main", "-" * 40])
def test_a_revision_that_is_not_a_full_one_is_refused_with_the_reason(
    layout: Layout, vllm: Upstream, console: Console, revision: str
) -> None:
    source = pinned(vllm).model_copy(update={"revision": revision})
    reason = "a server does not serve an abbreviated id, and one that is unique today can become ambiguous"
    with pytest.raises(PinError, match=reason) as caught:
        obtain(layout, "vllm", source, console)
    assert caught.value.expected == "a full revision: 40 lower-case hex digits"
    assert caught.value.found == f"{revision!r} ({len(revision)} characters)"
    assert (caught.value.hint or "").startswith(f"git rev-parse {revision}")
    assert not layout.cache.exists()


def test_a_nested_pin_is_held_to_the_same_and_before_anything_is_fetched(
    layout: Layout, vllm: Upstream, console: Console
) -> None:
    pin = NestedSource.model_construct(repository=vllm.address, revision="e74fc3f")
    with pytest.raises(PinError, match="the revision of cutlass is not a full one"):
        obtain(layout, "vllm", pinned(vllm).model_copy(update={"nested": {"cutlass": pin}}), console)
    assert not layout.cache.exists()


@pytest.mark.parametrize("address", ["https://user:secret@example.invalid/x", "https://secret@example.invalid/x"])
def test_an_address_with_a_secret_is_refused_and_not_repeated(layout: Layout, console: Console, address: str) -> None:
    with pytest.raises(PinError, match="password or token") as caught:
        obtain(layout, "vllm", GitSource(repository=address, revision="0" * 40), console)
    assert "secret" not in str(caught.value)


def test_a_name_that_would_leave_the_cache_is_refused(layout: Layout, vllm: Upstream, console: Console) -> None:
    with pytest.raises(PinError, match="becomes a folder's"):
        obtain(layout, "../vllm", pinned(vllm), console)


def test_a_machine_without_git_is_told_so(
    layout: Layout, vllm: Upstream, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pinned(vllm)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(DoctorError, match="git is not installed"):
        obtain(layout, "vllm", source, console)


def test_a_revision_that_the_repository_does_not_have_is_said_and_leaves_nothing(
    layout: Layout, vllm: Upstream, console: Console
) -> None:
    absent = "1" * 40
    with pytest.raises(BuildError, match=f"{absent}: the repository has no such revision") as caught:
        obtain(layout, "vllm", pinned(vllm, absent), console)
    assert f"not our ref {absent}" in (caught.value.found or ""), "git's own words"
    assert caught.value.log is not None
    assert absent in caught.value.log.read_text()
    assert in_the_cache(layout) == []


def test_the_files_are_the_committed_bytes_whatever_attributes_and_settings_say(
    layout: Layout, tmp_path: Path, configuration: Path, console: Console
) -> None:
    attributes = "*.crlf text eol=crlf\n*.id ident\n*.wide working-tree-encoding=UTF-16BE\n*.bin filter=shout\n"
    files = {"a.crlf": "1\n", "a.id": "$Id$\n", "a.wide": "w\n", "a.bin": "b\n"}
    source = Upstream.make(tmp_path / "up" / "vllm", files)
    # Committed as they are, and only then given attributes that would change them.
    (source.folder / ".gitattributes").write_text(attributes)
    git(source.folder, "add", ".gitattributes")
    git(source.folder, "commit", "--quiet", "--message", "Attributes")
    configuration.write_text(
        '[core]\n\tautocrlf = true\n\teol = crlf\n[filter "shout"]\n\tsmudge = tr a-z A-Z\n\trequired = true\n'
    )
    found = obtain(layout, "vllm", pinned(source), console)
    contents = {path.name: path.read_bytes() for path in found.path.glob("a.*")}
    assert contents == {name: text.encode() for name, text in files.items()}


def test_files_that_only_point_to_lfs_are_named(layout: Layout, tmp_path: Path, console: Console) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    source = Upstream.make(tmp_path / "up" / "vllm", {"weights.bin": pointer})
    obtain(layout, "vllm", pinned(source), console)
    assert "not fetched, as Git LFS keeps the contents (files: 1): weights.bin" in said(console)


def test_the_callers_repository_variables_and_hooks_have_no_effect(
    layout: Layout, vllm: Upstream, tmp_path: Path, configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Upstream.make(tmp_path / "other", {"other": "x"})
    before = upstream.snapshot(other.folder)
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.folder / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.folder / ".git" / "objects"))
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch '{tmp_path}/a-hook-ran'\n")
    (hooks / "post-checkout").chmod(0o755)
    configuration.write_text(f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {tmp_path}\n")
    found = obtain(layout, "vllm", pinned(vllm), Console(sys.stderr))
    assert (found.path / "run.sh").exists()
    assert upstream.snapshot(other.folder) == before
    assert not (tmp_path / "a-hook-ran").exists()


def test_a_sites_mirror_by_insteadof_is_used(
    layout: Layout, vllm: Upstream, configuration: Path, console: Console
) -> None:
    configuration.write_text(f'[url "{vllm.folder.parent.as_uri()}/"]\n\tinsteadOf = https://example.invalid/\n')
    source = GitSource(repository="https://example.invalid/vllm", revision=vllm.head, version="1")
    assert obtain(layout, "vllm", source, console).repository == "https://example.invalid/vllm"


def test_pinned_nested_sources_come_along_each_in_a_place_of_its_own(
    layout: Layout, vllm: Upstream, nest: Upstream, console: Console
) -> None:
    pin = NestedSource(repository=nest.address, revision=nest.head)
    found = obtain(layout, "vllm", pinned(vllm).model_copy(update={"nested": {"cutlass": pin}}), console)
    assert set(found.nested) == {"cutlass"}
    cutlass = found.nested["cutlass"]
    assert (cutlass.revision, cutlass.version, cutlass.described) == (nest.head, None, None)
    assert len(cutlass.submodules) == 2
    assert in_the_cache(layout) == [f"vllm-{vllm.head}", f"vllm.cutlass-{nest.head}"]
