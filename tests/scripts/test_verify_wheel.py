"""`verify` of one wheel: its name and tags, its metadata and its RECORD."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
import verified
from verified_wheel import FILES, INFO, check, make, problems, rewritten, with_record


def test_a_wheel_of_ours_has_nothing_wrong(tmp_path: Path) -> None:
    assert check(make(tmp_path)) == []


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
