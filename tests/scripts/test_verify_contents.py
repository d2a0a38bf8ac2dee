"""`verify` of one wheel: what lies in it, and what must not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import machine_code
import pytest
import verified
from verified_wheel import BUILDS, FILES, check, make, problems, rewritten

from scripts.verify import contents

ENGINE = {"vllm/__init__.py": b"", "vllm/vllm-rs": machine_code.program("x"), "vllm/_C.abi3.so": verified.KERNELS}


def engine(folder: Path, files: dict[str, bytes], device: str = "cpu") -> set[tuple[str, str]]:
    wheel = verified.wheel(folder, "vllm", "1.0", files)
    found = check(wheel, contents.of("vllm", device), "vllm")
    return {(finding.file.removeprefix("demo.whl: "), finding.problem) for finding in found}


def test_an_engine_with_its_front_end_and_kernels(tmp_path: Path) -> None:
    assert engine(tmp_path, ENGINE) == set()


@pytest.mark.parametrize(
    ("device", "lost"),
    [
        ("cpu", {"vllm/_C*.so"}),
        ("empty", set()),
        ("cuda", {"vllm/_C*.so", "vllm/_moe_C*.so", "vllm/vllm_flash_attn/*.so"}),
    ],
)
def test_an_engine_without_kernels(tmp_path: Path, device: str, lost: set[str]) -> None:
    files = {name: content for name, content in ENGINE.items() if not name.endswith(".so")}
    assert engine(tmp_path, files, device) == {(name, "is not in the wheel") for name in lost}


def test_an_engine_that_was_built_without_its_front_end(tmp_path: Path) -> None:
    files = {name: content for name, content in ENGINE.items() if name != "vllm/vllm-rs"}
    assert engine(tmp_path, files) == {("vllm/vllm-rs", "is not in the wheel")}


def test_a_front_end_that_is_no_program(tmp_path: Path) -> None:
    told = engine(tmp_path, {**ENGINE, "vllm/vllm-rs": b"#!/bin/sh\n"})
    assert told == {("vllm/vllm-rs", "is not an executable of machine code")}
    told = engine(tmp_path, {**ENGINE, "vllm/vllm-rs": verified.KERNELS})
    assert told == {("vllm/vllm-rs", "is not an executable of machine code")}


def test_a_front_end_that_may_not_be_executed(tmp_path: Path) -> None:
    wheel = verified.wheel(tmp_path, "vllm", "1.0", ENGINE)

    def edit(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        for info, _ in entries:
            info.external_attr = 0o100644 << 16

    found = check(rewritten(wheel, edit), contents.of("vllm", "cpu"), "vllm")
    assert [finding.problem for finding in found] == ["may not be executed"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is an empty library"), (b"text", "is named as a library and is not machine code")],
)
def test_a_library_that_is_none(tmp_path: Path, content: bytes, problem: str) -> None:
    """A second build over a stale folder has left such a library of no bytes."""
    assert engine(tmp_path, {**ENGINE, "vllm/more.so": content}) == {("vllm/more.so", problem)}
    assert engine(tmp_path, {**ENGINE, "vllm/more.so.1": content}) == {("vllm/more.so.1", problem)}


def test_machine_code_that_is_cut(tmp_path: Path) -> None:
    told = engine(tmp_path, {**ENGINE, "vllm/more.so": verified.KERNELS[:100]})
    assert ("vllm/more.so", "is machine code that cannot be read") in told


@pytest.mark.parametrize(
    "name",
    ["vllm/a.pyc", "vllm/__pycache__/a.txt", "vllm/.git/HEAD", "tests/test_a.py", "vllm-1.0.dist-info/direct_url.json"],
)
def test_a_file_that_must_not_be_in_a_wheel(tmp_path: Path, name: str) -> None:
    assert engine(tmp_path, {**ENGINE, name: b"x"}) == {(name, "must not be in a wheel")}


def test_tests_inside_dynamos_packages_are_upstreams_own() -> None:
    sizes = {"dynamo/frontend/__init__.py": 0, "dynamo/frontend/tests/test_a.py": 1}
    assert list(contents.problems(contents.of("ai-dynamo", "cpu"), sizes)) == []
    ours = {"smokestack_payload/__init__.py": 0, "smokestack_payload/tests/test_a.py": 1}
    (problem,) = contents.problems(contents.of("smokestack-payload", "cpu"), ours)
    assert problem.member == "smokestack_payload/tests/test_a.py"


def test_a_path_of_the_machine_that_built_it(tmp_path: Path) -> None:
    told = problems(make(tmp_path, {**FILES, "demo/built.py": f"WHERE = '{BUILDS}/here/x.c'".encode()}))
    assert told == {("demo/built.py", "has the folder of this machine's builds in it")}
