"""What a product must have in it, whatever its build says of itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import recipes_example as example

from scripts.errors import BuildError
from scripts.recipes.contents import check


def wheel(folder: Path, members: dict[str, tuple[bytes, int]]) -> Path:
    path = folder / "vllm-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, (data, mode) in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100000 | mode) << 16
            archive.writestr(info, data)
    return path


def refused(folder: Path, members: dict[str, tuple[bytes, int]]) -> BuildError:
    (product,) = example.plan("vllm").products
    with pytest.raises(BuildError) as caught:
        check(product, wheel(folder, members))
    return caught.value


def test_a_whole_wheel_passes(tmp_path: Path) -> None:
    (product,) = example.plan("vllm").products
    members = {"vllm/vllm-rs": (b"\x7fELF", 0o755), "vllm/_C.abi3.so": (b"x", 0o755)}
    check(product, wheel(tmp_path, members))


def test_one_without_its_front_end_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, {"vllm/__init__.py": (b"", 0o644)})
    assert error.what == "the wheel of vllm was built without vllm/vllm-rs"


def test_a_front_end_that_cannot_be_started_is_refused(tmp_path: Path) -> None:
    assert "not executable" in refused(tmp_path, {"vllm/vllm-rs": (b"\x7fELF", 0o644)}).what


@pytest.mark.parametrize(("data", "found"), [(b"", "the file is empty"), (b"#!/bin/sh", "something else")])
def test_a_front_end_that_is_no_program_is_refused(tmp_path: Path, data: bytes, found: str) -> None:
    assert found in (refused(tmp_path, {"vllm/vllm-rs": (data, 0o755)}).found or "")


def test_an_empty_library_is_refused(tmp_path: Path) -> None:
    members = {"vllm/vllm-rs": (b"\x7fELF", 0o755), "vllm/_C.abi3.so": (b"", 0o755)}
    assert refused(tmp_path, members).found == "vllm/_C.abi3.so"
