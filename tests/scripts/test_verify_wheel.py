"""`verify` of one wheel: its form as a zip file, its name and tags, RECORD, what lies in it, and where it runs."""

from __future__ import annotations

import hashlib
import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import machine_code
import pytest
import verified

from scripts import wheels
from scripts.manifest import Artifact
from scripts.verify import contents, system
from scripts.verify.artifacts import check_binary
from scripts.verify.contents import Contents
from scripts.verify.findings import Finding
from scripts.verify.wheel import check_wheel

INFO = "demo-1.0.dist-info"
FILES = {"demo/__init__.py": b"ONE = 1\n", "demo/_C.abi3.so": verified.KERNELS}
BUILDS = Path("/builds/of/this/machine")


NO_RULES = Contents()


def check(path: Path, rules: Contents = NO_RULES, name: str = "demo", version: str = "1.0") -> list[Finding]:
    artifact = Artifact(name=name, version=version, file=path.name, sha256="", size=0, made_from=[])
    return check_wheel(path, "demo.whl", artifact, rules, BUILDS).findings


def problems(path: Path, rules: Contents = NO_RULES) -> set[tuple[str, str]]:
    return {(finding.file.removeprefix("demo.whl: "), finding.problem) for finding in check(path, rules)}


def make(folder: Path, files: dict[str, bytes] | None = None, *, tag: str = verified.TAG) -> Path:
    return verified.wheel(folder, "demo", "1.0", FILES if files is None else files, tag=tag)


def rewritten(wheel: Path, change: Callable[[list[tuple[zipfile.ZipInfo, bytes]]], None]) -> Path:
    """The wheel with its entries changed and its RECORD as it was."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    change(entries)
    with warnings.catch_warnings(), zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        # zipfile itself warns of a name that it writes twice.
        warnings.simplefilter("ignore")
        for info, content in entries:
            archive.writestr(info, content)
    return wheel


def with_record(wheel: Path, change: Callable[[str], str]) -> Path:
    def edit(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        info, content = entries.pop()
        entries.append((info, change(content.decode()).encode()))

    return rewritten(wheel, edit)


def test_a_wheel_of_ours_has_nothing_wrong(tmp_path: Path) -> None:
    assert check(make(tmp_path)) == []


# The name and the tags


def test_tags_that_differ_from_the_file_name_are_both_told(tmp_path: Path) -> None:
    """As published wheels have it: renamed for an index, and not told so inside."""
    drifted = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp312-cp312-linux_x86_64\n"
    (finding,) = check(make(tmp_path, {**FILES, f"{INFO}/WHEEL": drifted}))
    assert (finding.kind, finding.file) == ("wheel", f"demo.whl: {INFO}/WHEEL")
    assert (finding.expected, finding.found) == (verified.TAG, "cp312-cp312-linux_x86_64")


@pytest.mark.parametrize(
    ("tag", "lines"),
    [
        ("py2.py3-none-any", "Tag: py2-none-any\nTag: py3-none-any\n"),
        ("py2.py3-none-any", "Tag: py2.py3-none-any\n"),
        ("py3-none-any", "Tag: py3-none-any\nBuild: 1\n"),
    ],
)
def test_a_set_of_tags_is_spelt_out_before_it_is_compared(tmp_path: Path, tag: str, lines: str) -> None:
    files = {"demo/__init__.py": b"", f"{INFO}/WHEEL": f"Wheel-Version: 1.0\n{lines}".encode()}
    assert check(make(tmp_path, files, tag=tag)) == []


@pytest.mark.parametrize("lines", ["", "Tag: py2-none-any\n", "Tag: nonsense\n"])
def test_a_tag_too_few_is_told(tmp_path: Path, lines: str) -> None:
    files = {"demo/__init__.py": b"", f"{INFO}/WHEEL": f"Wheel-Version: 1.0\n{lines}".encode()}
    told = problems(make(tmp_path, files, tag="py2.py3-none-any"))
    assert (f"{INFO}/WHEEL", "has other tags than the file's name") in told


@pytest.mark.parametrize("header", ["Name: other\nVersion: 1.0", "Name: demo\nVersion: 1.1", "Name: demo"])
def test_metadata_of_another_release(tmp_path: Path, header: str) -> None:
    wheel = make(tmp_path, {**FILES, f"{INFO}/METADATA": f"Metadata-Version: 2.1\n{header}\n".encode()})
    assert problems(wheel) == {(f"{INFO}/METADATA", "is of another release")}


def test_equal_versions_may_be_spelt_differently(tmp_path: Path) -> None:
    spelt = b"Metadata-Version: 2.1\nName: Demo\nVersion: 1.0.0\n"
    assert check(make(tmp_path, {**FILES, f"{INFO}/METADATA": spelt})) == []


def test_a_file_name_of_another_release_or_of_no_wheel(tmp_path: Path) -> None:
    wheel = make(tmp_path)
    other = wheel.rename(wheel.with_name(wheel.name.replace("1.0", "2.0", 1)))
    assert ("demo.whl", "is named as another release than the manifest's") in problems(other)
    nameless = other.rename(other.with_name("demo.whl"))
    assert ("demo.whl", "has not the name of a wheel") in problems(nameless)


@pytest.mark.parametrize("file", ["METADATA", "WHEEL", "RECORD"])
def test_metadata_that_is_not_there(tmp_path: Path, file: str) -> None:
    def drop(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        entries[:] = [each for each in entries if each[0].filename != f"{INFO}/{file}"]

    assert (f"{INFO}/{file}", "is not in the wheel") in problems(rewritten(make(tmp_path), drop))


def test_metadata_of_a_second_release(tmp_path: Path) -> None:
    wheel = make(tmp_path, {**FILES, "demo-2.0.dist-info/METADATA": b""})
    assert problems(wheel) == {("demo-2.0.dist-info", "is the metadata of another release")}


# RECORD


def test_record_has_to_list_every_file(tmp_path: Path) -> None:
    wheel = with_record(make(tmp_path), lambda text: text.partition("\n")[2])
    assert problems(wheel) == {("demo/_C.abi3.so", "is in the archive and not in RECORD")}


def test_record_has_to_list_nothing_else(tmp_path: Path) -> None:
    wheel = with_record(make(tmp_path), lambda text: f"gone.py,sha256=AA,1\n{text}")
    assert problems(wheel) == {("gone.py", "is in RECORD and not in the archive")}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("demo/__init__.py,sha256=", "demo/__init__.py,sha256=B", "is not what RECORD says"),
        ("demo/__init__.py,sha256=", "demo/__init__.py,md5=", "is not what RECORD says"),
        ("demo/__init__.py,sha256=", "demo/__init__.py,", "is not what RECORD says"),
        (",8\n", ",9\n", "has another size than RECORD says"),
        (",8\n", ",\n", "has another size than RECORD says"),
    ],
)
def test_record_has_to_be_right(tmp_path: Path, old: str, new: str, problem: str) -> None:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    assert problems(with_record(make(tmp_path), edit)) == {("demo/__init__.py", problem)}


def test_record_has_each_file_once_and_no_digest_of_itself(tmp_path: Path) -> None:
    twice = with_record(make(tmp_path), lambda text: text.partition("\n")[0] + "\n" + text)
    assert problems(twice) == {("demo/_C.abi3.so", "is in RECORD more than once")}
    itself = with_record(make(tmp_path), lambda text: text.replace("RECORD,,", "RECORD,sha256=AA,2"))
    assert problems(itself) == {(f"{INFO}/RECORD", "tells a digest of itself")}
    short = with_record(make(tmp_path), lambda text: f"{text}only a name\n")
    assert problems(short) == {(f"{INFO}/RECORD", "has a line that is not a name, a digest and a size")}


def test_a_file_that_was_changed_after_record_was_written(tmp_path: Path) -> None:
    def edit(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        entries[1] = (entries[1][0], b"TWO = 2\n")

    (finding,) = check(rewritten(make(tmp_path), edit))
    assert finding.file == "demo.whl: demo/__init__.py"
    assert finding.found == f"sha256 {hashlib.sha256(b'TWO = 2' + bytes([10])).hexdigest()}"


# The zip file


def added(
    name: str, content: bytes = b"", mode: int = 0o100644
) -> Callable[[list[tuple[zipfile.ZipInfo, bytes]]], None]:
    def add(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        entries.append((info, content))

    return add


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside.py", "demo/../../outside.py", "demo//a.py", "a\\b.py", "C:/a"]
)
def test_a_name_that_leaves_its_folder(tmp_path: Path, name: str) -> None:
    assert (name, "is not a plain relative name") in problems(rewritten(make(tmp_path), added(name)))


def test_a_name_with_control_characters(tmp_path: Path) -> None:
    told = problems(rewritten(make(tmp_path), added("demo/a\nb.py")))
    assert ("demo/a\nb.py", "has control characters in its name") in told


def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    told = problems(rewritten(make(tmp_path), added("demo/__init__.py", b"TWO = 2\n")))
    assert ("demo/__init__.py", "is in the archive more than once") in told


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, 0o100666, 0o100600, stat.S_IFIFO | 0o644, 0])
def test_a_mode_that_no_wheel_of_ours_has(tmp_path: Path, mode: int) -> None:
    told = problems(rewritten(make(tmp_path), added("demo/odd", b"x", mode)))
    assert ("demo/odd", "has another mode") in told


def test_a_second_name_in_an_extra_field(tmp_path: Path) -> None:
    """Info-ZIP's Unicode path, for which zipfile has no eyes."""

    def add(entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
        other = b"demo/evil.py"
        entries[1][0].extra = struct.pack("<2HBI", 0x7075, 5 + len(other), 1, 0) + other

    assert ("demo/__init__.py", "has fields that few readers know") in problems(rewritten(make(tmp_path), add))


def local_header(wheel: Path, name: str) -> int:
    with zipfile.ZipFile(wheel) as archive:
        return archive.getinfo(name).header_offset


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        (6, "has one set of flags in the directory and another in its header"),
        (8, "has one compression in the directory and another in its header"),
        (10, "has one date in the directory and another in its header"),
        (13, "has one date in the directory and another in its header"),
        (14, "has one checksum in the directory and another in its header"),
        (18, "has one compressed size in the directory and another in its header"),
        (22, "has one size in the directory and another in its header"),
        (30, "has one name in the directory and another in its header"),
        (0, "has no header where the directory says"),
    ],
)
def test_a_header_that_differs_from_the_directory(tmp_path: Path, offset: int, problem: str) -> None:
    wheel = make(tmp_path)
    data = bytearray(wheel.read_bytes())
    data[local_header(wheel, "demo/__init__.py") + offset] ^= 2
    wheel.write_bytes(data)
    assert ("demo/__init__.py", problem) in problems(wheel)


def test_sizes_that_follow_the_bytes(tmp_path: Path) -> None:
    class Unseekable(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.content += data
            return len(data)

    sink = Unseekable()
    with zipfile.ZipFile(make(tmp_path)) as archive, zipfile.ZipFile(sink, "w") as copy:  # type: ignore[call-overload]
        for info in archive.infolist():
            copy.writestr(info, archive.read(info))
    wheel = tmp_path / f"demo-1.0-{verified.TAG}.whl"
    wheel.write_bytes(sink.content)
    assert ("demo/__init__.py", "has one place for its size in the directory and another in its header") in problems(
        wheel
    )


def test_bytes_that_belong_to_no_file(tmp_path: Path) -> None:
    wheel = make(tmp_path / "front")
    wheel.write_bytes(b"#!/bin/sh\n" + wheel.read_bytes())
    assert any(problem == "does not begin where the file before it ends" for _, problem in problems(wheel))
    wheel = make(tmp_path / "end")
    wheel.write_bytes(wheel.read_bytes() + b"more")
    assert ("demo.whl", "has a comment or other bytes after its directory") in problems(wheel)
    wheel = make(tmp_path / "middle")
    wheel.write_bytes(with_gap(wheel.read_bytes()))
    assert ("demo.whl", "has bytes that belong to no file") in problems(wheel)


def with_gap(data: bytes) -> bytes:
    """Some bytes before the directory, which the archive's end knows of."""
    end = data.rindex(b"PK\x05\x06")
    (offset,) = struct.unpack_from("<I", data, end + 16)
    return data[:offset] + b"hidden" + data[offset : end + 16] + struct.pack("<I", offset + 6) + data[end + 20 :]


def test_a_comment_is_no_part_of_a_wheel(tmp_path: Path) -> None:
    wheel = make(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.comment = b"hello"
    assert problems(wheel) == {("demo.whl", "has a comment or other bytes after its directory")}


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file at all" * 20])
def test_a_file_that_is_no_zip(tmp_path: Path, content: bytes) -> None:
    wheel = make(tmp_path)
    wheel.write_bytes(content)
    assert problems(wheel) == {("demo.whl", "is not a whole zip file")}


def test_a_wheel_that_was_cut_or_changed_anywhere_is_told_and_nothing_breaks(tmp_path: Path) -> None:
    """`verify` looks into whole artifacts only; this is for wheels that were made wrong."""
    wheel = make(tmp_path)
    data, contents = wheel.read_bytes(), unpacked(wheel)
    for position in range(0, len(data), 11):
        wheel.write_bytes(data[:position])
        assert check(wheel), position
        other = bytearray(data)
        other[position] ^= 1 << position % 8
        wheel.write_bytes(other)
        # Dates and the like are told as well, and change nothing that anybody unpacks.
        assert check(wheel) or unpacked(wheel) == contents, position


def unpacked(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# What lies in it

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


# Where it runs


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


# An executable that is an artifact of its own


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


def test_the_writer_of_wheels_and_the_reader_agree(tmp_path: Path) -> None:
    many = {f"demo/{number}.py": bytes([number]) * number * 50 for number in range(100)}
    wheel = make(tmp_path, many)
    assert check(wheel) == []
    assert len(wheels.read_record(wheel, "demo", "1.0")) == 102
