"""Different folder, umask, locale, time zone and home, and the same bytes; the sources would show it otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fixture_project import Project, contents

from scripts import indexes
from tests.sources.repositories import HERE


def test_another_folder_umask_locale_time_zone_and_home(installed: Project, tmp_path: Path) -> None:
    """Not by `repro`: a person's own second build, one product first, in a folder with spaces, with nothing kept."""
    other = installed.another(tmp_path / "another place" / "with a longer name")
    home = tmp_path / "another home"
    home.mkdir()
    variables = {
        # A site may say in the home where packages come from.
        **indexes.uv_variables(os.environ, indexes.read_pip_config(sys.executable)),
        "HOME": str(home),
        "LC_ALL": "C",
        "TZ": "Asia/Kathmandu",
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
    }
    before = os.umask(0o077)
    try:
        alone = other.run("build", "--only", "sidecar", **variables).document
        assert alone["missing"] == ["vllm", "dynamo", "payload"]
        assert set(contents(other.layout.dist)) == {"dynamo-vllm-sidecar"}
        other.run("build", **variables)
    finally:
        os.umask(before)
    assert contents(other.layout.dist) == contents(installed.layout.dist)


def test_repro_reports_that_every_artifact_is_equal(installed: Project) -> None:
    levels = {each["file"]: each["level"] for each in installed.run("repro").document["files"]}
    assert set(levels) == set(contents(installed.layout.dist))
    assert set(levels.values()) == {"different-path equal"}


@pytest.mark.parametrize(
    ("source", "workspace", "product"),
    [
        ("vllm", "rust", "vllm-rs"),
        ("dynamo", "lib/bindings/python", "lib_core.so"),
    ],
)
def test_without_the_flags_of_the_recipes_the_same_sources_differ(
    tmp_path: Path, source: str, workspace: str, product: str
) -> None:
    """Else the tests above would prove nothing."""
    built = set()
    for name in ("one", "another"):
        folder = tmp_path / name
        shutil.copytree(HERE / source, folder)
        cargo = ("cargo", "build", "--release", "--frozen", "--quiet")
        subprocess.run(cargo, cwd=folder / workspace, env={**os.environ, "CARGO_BUILD_JOBS": "2"}, check=True)
        built.add((folder / workspace / "target" / "release" / product).read_bytes())
    assert len(built) == 2
