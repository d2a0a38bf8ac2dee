"""`verify` of machine code: where a wheel or an executable runs."""

from __future__ import annotations

import struct
from pathlib import Path

import machine_code
import pytest
import verified
from verified_wheel import BUILDS, FILES, INFO, check, make, problems

from scripts.verify import system
from scripts.verify.artifacts import check_binary
from scripts.verify.findings import Finding


def platform(folder: Path, library: bytes, tag: str = verified.TAG) -> list[Finding]:
    return check(make(folder, {"demo/__init__.py": b"", "demo/_C.abi3.so": library}, tag=tag))


@pytest.mark.parametrize(
    ("library", "version", "most"),
    [
        ("libc.so.6", "GLIBC_2.29", "GLIBC_2.28"),
        ("libstdc++.so.6", "GLIBCXX_3.4.25", "GLIBCXX_3.4.24"),
        ("libstdc++.so.6", "CXXABI_1.3.12", "CXXABI_1.3.11"),
    ],
)
def test_symbols_that_the_tag_does_not_promise(tmp_path: Path, library: str, version: str, most: str) -> None:
    (finding,) = platform(tmp_path, machine_code.library({library: [version]}))
    assert (finding.kind, finding.file) == ("platform", "demo.whl: demo/_C.abi3.so")
    assert finding.problem == "needs more than manylinux_2_28_x86_64 promises"
    assert (finding.expected, finding.found) == (f"at most {most}", version)


def test_an_older_name_of_a_tag_promises_the_same(tmp_path: Path) -> None:
    library = machine_code.library({"libc.so.6": ["GLIBC_2.18"]})
    (finding,) = platform(tmp_path, library, "cp38-abi3-manylinux2014_x86_64")
    assert (finding.expected, finding.found) == ("at most GLIBC_2.17", "GLIBC_2.18")


def test_a_set_of_tags_promises_what_each_of_them_does(tmp_path: Path) -> None:
    library = machine_code.library({"libc.so.6": ["GLIBC_2.28"]})
    files = {
        "demo/_C.abi3.so": library,
        f"{INFO}/WHEEL": b"Root-Is-Purelib: false\n"
        b"Tag: cp38-abi3-manylinux_2_17_x86_64\nTag: cp38-abi3-manylinux_2_28_x86_64\n",
    }
    wheel = make(tmp_path, files, tag="cp38-abi3-manylinux_2_17_x86_64.manylinux_2_28_x86_64")
    assert [finding.problem for finding in check(wheel)] == ["needs more than manylinux_2_17_x86_64 promises"]


def test_a_tag_of_linux_alone_promises_nothing(tmp_path: Path) -> None:
    library = machine_code.library({"libc.so.6": ["GLIBC_2.29"]})
    assert platform(tmp_path, library, "cp38-abi3-linux_x86_64") == []


def test_a_tag_that_nobody_has_defined(tmp_path: Path) -> None:
    library = machine_code.library({"libc.so.6": ["GLIBC_2.2.5"]})
    (finding,) = platform(tmp_path, library, "cp38-abi3-manylinux_9_99_x86_64")
    assert "nobody can judge" in finding.problem


def test_symbols_that_this_machine_does_not_have(tmp_path: Path) -> None:
    library = machine_code.library({"libc.so.6": ["GLIBC_2.2.5", "GLIBC_2.99"]})
    (finding,) = platform(tmp_path, library, "cp38-abi3-linux_x86_64")
    assert finding.problem == "needs more than this machine's libc.so.6 has"
    assert finding.expected == "GLIBC_2.99"
    assert str(finding.found).startswith("GLIBC_2.")


def test_machine_code_for_another_machine(tmp_path: Path) -> None:
    (finding,) = platform(tmp_path, machine_code.for_aarch64({}))
    assert (finding.problem, finding.found) == ("is for another machine than the wheel's name", "aarch64")


def test_machine_code_in_a_wheel_for_any_machine(tmp_path: Path) -> None:
    (finding,) = platform(tmp_path, verified.KERNELS, "py3-none-any")
    assert finding.problem == "is machine code, and the wheel's name is for any machine"


def test_a_wheel_that_says_that_it_has_no_machine_code(tmp_path: Path) -> None:
    files = {**FILES, f"{INFO}/WHEEL": f"Root-Is-Purelib: true\nTag: {verified.TAG}\n".encode()}
    assert problems(make(tmp_path, files)) == {(f"{INFO}/WHEEL", "says that there is no machine code")}


def test_a_library_that_hides_what_it_needs(tmp_path: Path) -> None:
    """Without section headers the loader still knows, and nobody else does."""
    library = bytearray(verified.KERNELS)
    struct.pack_into("<Q", library, 40, 0)
    struct.pack_into("<3H", library, 58, 0, 0, 0)
    assert ("demo/_C.abi3.so", "is machine code that cannot be read") in problems(
        make(tmp_path, {"demo/_C.abi3.so": bytes(library)})
    )


def binary(path: Path, content: bytes, mode: int = 0o755) -> tuple[set[str], dict[str, str | None]]:
    path.write_bytes(content)
    path.chmod(mode)
    found, libraries = check_binary(path, BUILDS)
    return {problem.what for problem in found}, libraries


def test_an_executable_of_ours(tmp_path: Path) -> None:
    assert binary(tmp_path / "tool", machine_code.program("x")) == (set(), {})


def test_an_executable_is_told_its_libraries(tmp_path: Path) -> None:
    code = machine_code.library({"libc.so.6": ["GLIBC_2.2.5"], "libmissing.so.1": []})
    problems, libraries = binary(tmp_path / "tool", code)
    assert problems == {"is a library and not an executable"}
    assert libraries["libmissing.so.1"] is None
    assert str(libraries["libc.so.6"]).endswith("/libc.so.6")


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (machine_code.program("x"), 0o644, "may not be executed"),
        (b"#!/bin/sh\n", 0o755, "is not an executable of machine code"),
        (machine_code.program(f"{BUILDS}/src/main.rs"), 0o755, "has the folder of this machine's builds in it"),
        (machine_code.for_aarch64({}), 0o755, "is for another machine than this one"),
        (machine_code.library({"libc.so.6": ["GLIBC_2.99"]}), 0o755, "needs more than this machine's libc.so.6 has"),
    ],
)
def test_an_executable_that_is_wrong(tmp_path: Path, content: bytes, mode: int, problem: str) -> None:
    assert problem in binary(tmp_path / "tool", content, mode)[0]


def test_a_library_for_another_machine_is_not_the_one_that_is_loaded() -> None:
    assert system.find("libc.so.6", "x86_64") is not None
    assert system.find("libc.so.6", "aarch64") is None
