"""One byte, anywhere in `dist/` or in the environment, and `verify` fails with the file's name.

Every file there is, one after the other, is held to what `verify` stands on; some, to the command itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fixture_project import Project

from scripts import manifest as manifests
from scripts.verify.dist import verify_dist
from scripts.verify.environment import verify_environment
from tests.tampering import absent, added, flipped

SITE = "lib/python3.*/site-packages"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def the_one(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def at(path: Path, part: float) -> int:
    """The position of a byte: of the first one at 0.0, of the last one at 1.0."""
    return round(part * (path.stat().st_size - 1))


def wrong_in_dist(project: Project) -> set[str]:
    return {finding.file for finding in verify_dist(project.layout).findings}


def wrong_in_environment(project: Project) -> set[str]:
    manifest = manifests.load(project.layout.manifest)
    assert manifest is not None
    whole = [artifact.file for artifact in manifest.artifacts]
    return {finding.file for finding in verify_environment(project.layout, manifest, whole).findings}


def name(project: Project, path: Path) -> str:
    return path.relative_to(project.root).as_posix()


def complaint(project: Project) -> set[str]:
    """The files that the command complains of."""
    answer = project.run("verify", status=1)
    assert answer.document["ok"] is False
    return {finding["file"] for finding in answer.document["findings"]}


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_flipped_bit_in_any_file_of_dist_is_named_and_nothing_else_is(
    installed: Project, tmp_path: Path, part: float
) -> None:
    paths = files(installed.layout.dist)
    assert len(paths) == 9
    for path in paths:
        with flipped(path, at(path, part), tmp_path):
            assert wrong_in_dist(installed) == {name(installed, path)}
    assert wrong_in_dist(installed) == set()


def test_any_file_that_is_gone_from_dist_is_named(installed: Project, tmp_path: Path) -> None:
    for path in files(installed.layout.dist):
        with absent(path, tmp_path):
            assert name(installed, path) in wrong_in_dist(installed)


@pytest.mark.parametrize("part", [0.0, 1.0])
def test_a_flipped_bit_in_any_file_of_the_environment_is_named_and_nothing_else_is(
    installed: Project, tmp_path: Path, part: float
) -> None:
    paths = files(installed.layout.environment)
    kinds = {path.suffix for path in paths} | {path.name for path in paths}
    assert {".py", ".pyc", ".so", "vllm-rs", "RECORD", "METADATA", "pyvenv.cfg", "etcd", "activate"} <= kinds
    assert {"smokestack-install.json", "smokestack-contents.json", "smokestack-inventory.json"} <= kinds
    for path in paths:
        if path.stat().st_size:
            with flipped(path, at(path, part), tmp_path):
                assert wrong_in_environment(installed) == {name(installed, path)}
    assert wrong_in_environment(installed) == set()


def test_any_file_that_is_gone_from_the_environment_is_named(installed: Project, tmp_path: Path) -> None:
    for path in files(installed.layout.environment):
        with absent(path, tmp_path):
            assert name(installed, path) in wrong_in_environment(installed)


def test_a_link_that_leads_elsewhere_is_named(installed: Project, tmp_path: Path) -> None:
    for path in sorted(path for path in installed.layout.environment.rglob("*") if path.is_symlink()):
        with absent(path, tmp_path):
            path.symlink_to("/bin/true")
            assert name(installed, path) in wrong_in_environment(installed)
            path.unlink()


@pytest.mark.parametrize("pattern", ["dist/fixture/dynamo-vllm-sidecar", f".venv-fixture/{SITE}/vllm/vllm-rs"])
def test_the_command_names_a_flipped_bit(installed: Project, tmp_path: Path, pattern: str) -> None:
    path = the_one(installed.root, pattern)
    with flipped(path, at(path, 0.5), tmp_path):
        assert name(installed, path) in complaint(installed)


@pytest.mark.parametrize("stranger", ["dist/fixture/vllm-9.9.9-py3-none-any.whl", f".venv-fixture/{SITE}/stranger.py"])
def test_the_command_names_a_file_too_many(installed: Project, stranger: str) -> None:
    folder = the_one(installed.root, str(Path(stranger).parent))
    with added(folder / Path(stranger).name):
        assert name(installed, folder / Path(stranger).name) in complaint(installed)


def test_afterwards_everything_is_as_it_was(installed: Project) -> None:
    assert installed.run("verify").document["ok"]
