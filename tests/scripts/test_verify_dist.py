"""`verify` of `dist/<stack>`: one byte, one file too many or too few, and the file is named, and no other."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import Project

from scripts import sums
from scripts.verify.dist import verify_dist
from scripts.verify.findings import Finding
from tests.tampering import absent, changed, flipped

NAMES = (
    "SHA256SUMS",
    "manifest.json",
    "provenance.json",
    "sbom.cdx.json",
    "smokestack_payload-0.1.0-py3-none-any.whl",
    "vllm-1.0.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl",
)
PLACES = 120
"""How many bytes of a file are changed, one after the other."""


def found(project: Project) -> list[Finding]:
    return verify_dist(project.layout).findings


def named(project: Project) -> set[str]:
    return {finding.file for finding in found(project)}


def test_a_build_is_as_it_was_written(whole: Project) -> None:
    dist = verify_dist(whole.layout)
    assert not dist.findings
    assert dist.manifest is not None
    assert dist.whole == {path.name for path in whole.layout.dist.iterdir()} - {"SHA256SUMS"}
    assert sorted(path.name for path in whole.layout.dist.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_byte_names_its_file_and_no_other(whole: Project, tmp_path: Path, name: str) -> None:
    path = whole.layout.dist / name
    size = path.stat().st_size
    # SHA256SUMS, which tells of the others, byte for byte.
    for position in range(0, size, 1 if name == "SHA256SUMS" else max(1, size // PLACES)):
        with flipped(path, position, tmp_path):
            assert named(whole) == {f"dist/mini/{name}"}, position
    assert not found(whole)


@pytest.mark.parametrize(("name", "other"), list(itertools.combinations(NAMES, 2)))
def test_two_changed_files_are_both_named(whole: Project, tmp_path: Path, name: str, other: str) -> None:
    (tmp_path / "other").mkdir()
    paths = (whole.layout.dist / name, whole.layout.dist / other)
    for position in (0, 70, -1):
        with flipped(paths[0], position, tmp_path), flipped(paths[1], position, tmp_path / "other"):
            assert named(whole) == {f"dist/mini/{name}", f"dist/mini/{other}"}, position


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_gone(whole: Project, tmp_path: Path, name: str) -> None:
    with absent(whole.layout.dist / name, tmp_path):
        assert [(each.kind, each.file) for each in found(whole)] == [("missing", f"dist/mini/{name}")]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 2}'])
def test_a_manifest_that_is_none(whole: Project, tmp_path: Path, text: str) -> None:
    with changed(whole.layout.manifest, text.encode(), tmp_path):
        dist = verify_dist(whole.layout)
    assert [(each.kind, each.file) for each in dist.findings] == [("altered", "dist/mini/manifest.json")]
    assert dist.manifest is None


def test_a_manifest_that_is_whole_json_and_says_something_else(whole: Project, tmp_path: Path) -> None:
    manifest = json.loads(whole.layout.manifest.read_text())
    manifest["artifacts"][0]["sha256"] = "0" * 64
    text = json.dumps(manifest, indent=2) + "\n"
    with changed(whole.layout.manifest, text.encode(), tmp_path):
        assert named(whole) == {"dist/mini/manifest.json"}


def test_sums_that_were_written_again_do_not_hide_a_changed_artifact(whole: Project, tmp_path: Path) -> None:
    """Whoever changes an artifact and its sum has the manifest's digest against him."""
    (tmp_path / "sums").mkdir()
    dist, name = whole.layout.dist, NAMES[-1]
    written = sums.read((dist / "SHA256SUMS").read_bytes()).digests
    forged = {**written, name: hashlib.sha256(b"another").hexdigest()}
    with (
        changed(dist / name, b"another", tmp_path),
        changed(dist / "SHA256SUMS", sums.render(forged).encode(), tmp_path / "sums"),
    ):
        (finding,) = found(whole)
    assert (finding.kind, finding.file) == ("altered", f"dist/mini/{name}")
    assert finding.problem == "has one digest in the manifest and another in SHA256SUMS"


def test_sums_that_leave_a_document_out(whole: Project, tmp_path: Path) -> None:
    (tmp_path / "sums").mkdir()
    path = whole.layout.dist / "SHA256SUMS"
    fewer = {name: digest for name, digest in sums.read(path.read_bytes()).digests.items() if name != "sbom.cdx.json"}
    with (
        absent(whole.layout.dist / "sbom.cdx.json", tmp_path),
        changed(path, sums.render(fewer).encode(), tmp_path / "sums"),
    ):
        (finding,) = found(whole)
    assert (finding.kind, finding.file, finding.problem) == (
        "missing",
        "dist/mini/sbom.cdx.json",
        "was not written by the build",
    )


@pytest.mark.parametrize(
    "spoil", [lambda text: f"{text}# more\n", lambda text: text.replace("\n", "\r\n"), lambda text: "\n" + text]
)
def test_sums_in_which_no_digest_was_changed(whole: Project, tmp_path: Path, spoil: Callable[[str], str]) -> None:
    path = whole.layout.dist / "SHA256SUMS"
    with changed(path, spoil(path.read_text()).encode(), tmp_path):
        assert named(whole) == {"dist/mini/SHA256SUMS"}


def test_a_file_too_many(whole: Project) -> None:
    stranger = whole.layout.dist / "vllm-9.9-py3-none-any.whl"
    stranger.write_bytes(b"x")
    try:
        assert [(each.kind, each.file) for each in found(whole)] == [("extra", f"dist/mini/{stranger.name}")]
    finally:
        stranger.unlink()


def test_a_folder_and_a_pipe_are_no_files_of_a_build(whole: Project) -> None:
    (whole.layout.dist / "folder").mkdir()
    os.mkfifo(whole.layout.dist / "pipe")
    try:
        assert named(whole) == {"dist/mini/folder", "dist/mini/pipe"}
    finally:
        (whole.layout.dist / "folder").rmdir()
        (whole.layout.dist / "pipe").unlink()


@pytest.mark.parametrize("name", NAMES)
def test_a_link_to_the_right_bytes_is_not_the_file(whole: Project, tmp_path: Path, name: str) -> None:
    path = whole.layout.dist / name
    with absent(path, tmp_path) as kept:
        path.symlink_to(kept)
        assert {(each.file, each.found) for each in found(whole)} <= {
            (f"dist/mini/{name}", f"a link to {kept}"),
            (f"dist/mini/{name}", None),
        }
        assert named(whole) == {f"dist/mini/{name}"}


def test_a_signature_beside_the_statement_is_no_stranger(whole: Project) -> None:
    bundle = whole.layout.dist / "provenance.json.sigstore.json"
    bundle.write_text("{}")
    try:
        assert not found(whole)
    finally:
        bundle.unlink()


def test_a_build_that_did_not_end_is_one_finding(whole: Project, tmp_path: Path) -> None:
    """As after an interruption, or with products that were built one by one."""
    with absent(whole.layout.manifest, tmp_path), absent(whole.layout.dist / "SHA256SUMS", tmp_path):
        (finding,) = found(whole)
    assert (finding.file, finding.problem) == ("dist/mini/manifest.json", "is not there: no build has ended")


def test_nothing_built_is_one_finding(project: Project) -> None:
    assert [(each.kind, each.file) for each in found(project)] == [("missing", "dist/mini")]
