"""`verify` of the environment: every file, link and folder in it is what the install left, or it is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from synthetic import PYTHON, Project, sha256

from scripts import inventory
from scripts.verify.dist import verify_dist
from scripts.verify.environment import verify_environment
from scripts.verify.findings import Finding
from tests.tampering import absent, changed, flipped

SITE = f"lib/python{PYTHON}/site-packages"
PLACES = 4
"""How many bytes of each file are changed, one after the other."""


def found(project: Project) -> list[Finding]:
    dist = verify_dist(project.layout)
    return verify_environment(project.layout, dist.manifest, dist.whole).findings


def named(project: Project) -> set[str]:
    return {finding.file for finding in found(project)}


def files(project: Project) -> list[Path]:
    return sorted(path for path in project.layout.environment.rglob("*") if path.is_file() and not path.is_symlink())


def test_an_environment_is_as_it_was_installed(whole: Project) -> None:
    assert not found(whole)


def test_a_changed_byte_names_its_file_and_no_other(whole: Project, tmp_path: Path) -> None:
    seen = set()
    for path in files(whole):
        size = path.stat().st_size
        for position in sorted({place * (size - 1) // PLACES for place in range(PLACES + 1)} if size else ()):
            with flipped(path, position, tmp_path):
                assert named(whole) == {whole.layout.relative(path)}, position
            seen.add(path.relative_to(whole.layout.environment).as_posix())
    assert {"pyvenv.cfg", "bin/activate", "smokestack-install.json", "smokestack-contents.json"} <= seen
    assert {f"{SITE}/vllm/vllm-rs", f"{SITE}/torch-1.0.0+cpu.dist-info/RECORD", inventory.FILE_NAME} <= seen
    assert any(name.endswith(".pyc") for name in seen)
    assert not found(whole)


def test_a_file_that_is_gone_is_named(whole: Project, tmp_path: Path) -> None:
    for path in files(whole):
        with absent(path, tmp_path):
            assert whole.layout.relative(path) in named(whole)
            assert {each.kind for each in found(whole)} == {"missing"}, path


def test_the_inventory_is_told_from_what_it_lists(whole: Project, tmp_path: Path) -> None:
    path = whole.layout.environment / inventory.FILE_NAME
    for position in range(0, path.stat().st_size, 71):
        with flipped(path, position, tmp_path):
            assert named(whole) == {f".venv-mini/{inventory.FILE_NAME}"}, position


def test_all_that_was_changed_is_named_also_when_the_inventory_was(whole: Project, tmp_path: Path) -> None:
    env = whole.layout.environment
    paths = [env / name for name in (inventory.FILE_NAME, "pyvenv.cfg", "bin/etcd", f"{SITE}/vllm/kernels.py")]
    for number in range(len(paths)):
        (tmp_path / str(number)).mkdir()
    with (
        flipped(paths[0], 400, tmp_path / "0"),
        flipped(paths[1], 3, tmp_path / "1"),
        flipped(paths[2], 9, tmp_path / "2"),
        absent(paths[3], tmp_path / "3"),
    ):
        assert named(whole) >= {whole.layout.relative(path) for path in paths}


def test_an_inventory_that_is_no_json_leaves_the_packages_records(whole: Project, tmp_path: Path) -> None:
    env = whole.layout.environment
    (tmp_path / "other").mkdir()
    with (
        changed(env / inventory.FILE_NAME, b"{", tmp_path),
        flipped(env / SITE / "torch-1.0.0+cpu.dist-info" / "METADATA", 5, tmp_path / "other"),
    ):
        kinds = {(each.file, each.kind) for each in found(whole)}
    assert (f".venv-mini/{inventory.FILE_NAME}", "altered") in kinds
    assert (".venv-mini", "unjudged") in kinds
    assert (f".venv-mini/{SITE}/torch-1.0.0+cpu.dist-info/METADATA", "altered") in kinds


def test_a_rewritten_inventory_does_not_hide_a_changed_file_of_ours(whole: Project, tmp_path: Path) -> None:
    """Our wheels lie in `dist`, so that their files have a witness outside of the environment."""
    env = whole.layout.environment
    (tmp_path / "inventory").mkdir()
    with (
        changed(env / SITE / "vllm" / "kernels.py", b"CPU = 'mine'\n", tmp_path),
        absent(env / inventory.FILE_NAME, tmp_path / "inventory"),
    ):
        inventory.write(env, inventory.take(env))
        (finding,) = found(whole)
    assert finding.file == f".venv-mini/{SITE}/vllm/kernels.py"
    assert finding.problem == "is not what vllm-1.0.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl has"


def test_an_executable_is_held_to_the_manifest_too(whole: Project, tmp_path: Path) -> None:
    """A program of its own on `bin`, where the manifest has a link into a package."""
    env = whole.layout.environment
    (tmp_path / "inventory").mkdir()
    with absent(env / "bin" / "vllm-rs", tmp_path), absent(env / inventory.FILE_NAME, tmp_path / "inventory"):
        (env / "bin" / "vllm-rs").write_text("#!/bin/sh\n")
        inventory.write(env, inventory.take(env))
        (finding,) = found(whole)
        (env / "bin" / "vllm-rs").unlink()
    assert (finding.file, finding.problem) == (".venv-mini/bin/vllm-rs", "is not what the manifest has")


@pytest.mark.parametrize("place", ["", "bin", SITE, f"{SITE}/vllm", f"{SITE}/vllm/__pycache__"])
def test_a_file_too_many_is_named(whole: Project, place: str) -> None:
    stranger = whole.layout.environment / place / "stranger.cpython-311-pytest-9.2.0.pyc"
    stranger.write_bytes(b"")
    try:
        assert [(each.kind, each.file) for each in found(whole)] == [("extra", whole.layout.relative(stranger))]
    finally:
        stranger.unlink()


def test_a_package_too_many_is_named_file_by_file(whole: Project) -> None:
    package = whole.layout.environment / SITE / "stray-2.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: Stray\nVersion: 2.0\n")
    try:
        assert named(whole) == {whole.layout.relative(package), whole.layout.relative(package / "METADATA")}
    finally:
        shutil.rmtree(package)


def test_a_package_too_many_is_named_also_when_the_inventory_has_it(whole: Project, tmp_path: Path) -> None:
    env = whole.layout.environment
    package = env / SITE / "stray-2.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: Stray\nVersion: 2.0\n")
    try:
        with absent(env / inventory.FILE_NAME, tmp_path):
            inventory.write(env, inventory.take(env))
            (finding,) = found(whole)
    finally:
        shutil.rmtree(package)
    assert (finding.file, finding.problem) == (f".venv-mini/{SITE}/stray", "is not the manifest's package")
    assert (finding.expected, finding.found) == ("no such package", "2.0")


def test_another_mode_is_a_change(whole: Project) -> None:
    path = whole.layout.environment / "pyvenv.cfg"
    mode = path.stat().st_mode
    path.chmod(0o600)
    try:
        (finding,) = found(whole)
    finally:
        path.chmod(mode)
    assert finding.file == ".venv-mini/pyvenv.cfg"
    assert str(finding.found).startswith("file 0600 ")


@pytest.mark.parametrize("name", ["bin/python", "bin/vllm-rs", "lib64"])
def test_a_link_with_another_target_is_named(whole: Project, tmp_path: Path, name: str) -> None:
    path = whole.layout.environment / name
    target = path.readlink()
    with absent(path, tmp_path):
        path.symlink_to(f"./{target}" if not target.is_absolute() else "/bin/true")
        (finding,) = found(whole)
        path.unlink()
    assert (finding.file, finding.expected) == (f".venv-mini/{name}", f"link 0000 {target}")


def test_a_file_in_the_place_of_a_link_is_named(whole: Project, tmp_path: Path) -> None:
    path = whole.layout.environment / "bin" / "vllm-rs"
    content = path.read_bytes()
    with absent(path, tmp_path):
        path.write_bytes(content)
        assert named(whole) == {".venv-mini/bin/vllm-rs"}
        path.unlink()


def test_a_python_that_is_gone_is_named(whole: Project, tmp_path: Path) -> None:
    """The link in the environment is untouched, and leads to an interpreter that was uninstalled."""
    env = whole.layout.environment
    missing = tmp_path / "uninstalled"
    with absent(env / "bin" / "python", tmp_path), absent(env / inventory.FILE_NAME, tmp_path):
        (env / "bin" / "python").symlink_to(missing)
        inventory.write(env, inventory.take(env))
        gone = {(each.file, each.problem) for each in found(whole) if each.problem == "is a link that leads nowhere"}
        (env / "bin" / "python").unlink()
    assert (".venv-mini/bin/python", "is a link that leads nowhere") in gone


def test_an_edit_that_reached_uvs_cache_says_so(whole: Project, tmp_path: Path) -> None:
    path = whole.layout.environment / SITE / "vllm" / "kernels.py"
    with changed(path, b"CPU = 1\n", tmp_path):
        os.link(path, tmp_path / "in-the-cache")
        (finding,) = found(whole)
    assert "one file in 2 places: uv's cache has it, too" in str(finding.found)


def test_an_environment_of_another_build_is_one_finding(whole: Project, tmp_path: Path) -> None:
    """Built again and not installed again: nothing in it was altered."""
    layout = whole.layout
    manifest = json.loads(layout.manifest.read_text())
    dist = verify_dist(layout)
    manifest["summary"] = "built again"
    with changed(layout.manifest, (json.dumps(manifest, indent=2) + "\n").encode(), tmp_path):
        (finding,) = verify_environment(layout, dist.manifest, dist.whole).findings
        expected = f"sha256 {sha256(layout.manifest)}"
    assert (finding.kind, finding.file) == ("inputs", ".venv-mini/smokestack-install.json")
    assert finding.expected == expected


def test_nothing_installed_is_one_finding(project: Project) -> None:
    (finding,) = verify_environment(project.layout, None, ()).findings
    assert (finding.kind, finding.file) == ("missing", ".venv-mini")
