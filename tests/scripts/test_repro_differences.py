"""What `repro` says of two files that differ: where they part, and what that place looks like."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.build_paths import BuildPaths
from scripts.console import Console
from scripts.layout import Layout
from scripts.repro.comparison import Level, compare
from scripts.repro.difference import first_difference
from scripts.repro.explaining import by_diffoscope, explained

PLACES = (Path("/site/one"), Path("/site/another"))
MIB = 1 << 20
NOW = 1_790_000_950.0


def part(one: bytes, other: bytes) -> str:
    found = first_difference(io.BytesIO(one), io.BytesIO(other))
    return "equal" if found is None else found.described(NOW)


@pytest.mark.parametrize("offset", [0, 1, 95, 97, MIB - 1, MIB, MIB + 1, 2 * MIB + 7])
def test_the_first_byte_that_differs_is_named(offset: int) -> None:
    one, other = bytearray(3 * MIB), bytearray(3 * MIB)
    other[offset] = other[offset + 50] = 1
    found = first_difference(io.BytesIO(one), io.BytesIO(other))
    assert found is not None
    assert (found.offset, found.one[found.at], found.other[found.at]) == (offset, 0, 1)


def test_a_file_that_only_goes_on_parts_at_the_other_ones_end() -> None:
    assert part(b"abc", b"abcdef") == "first at byte 3: the end of the file against 'abcdef'"
    assert part(b"x" * MIB, b"x" * MIB) == "equal"


@pytest.mark.parametrize("lead", [b"", b"\0" * (MIB - 9)])
@pytest.mark.parametrize(
    ("one", "other", "looks"),
    [
        (b"\0/site/one/src/lib.rs\0", b"\0/site/another/src/lib.rs\0", "a path"),
        (b"built 2026-11-29T18:12:01Z.", b"built 2026-11-29T18:12:07Z.", "a date"),
        (b"(main, Nov 29 2026, 18:12:01)", b"(main, Nov 30 2026, 00:00:01)", "a date"),
        (struct.pack("<I", 1_790_000_000), struct.pack("<I", 1_790_000_900), "a date"),
        (struct.pack(">Q", 1_790_000_000), struct.pack(">Q", 1_790_000_900), "a date"),
        (b"seed 17", b"seed 42", None),
        (struct.pack("<I", 1_790_000_000), struct.pack("<I", 1_590_000_000), None),
    ],
)
def test_the_place_looks_like_a_path_or_a_date_or_neither(
    one: bytes, other: bytes, looks: str | None, lead: bytes
) -> None:
    found = first_difference(io.BytesIO(lead + one), io.BytesIO(lead + other))
    assert found is not None
    assert found.looks_like(NOW) == looks


def archive(path: Path, files: Mapping[str, bytes], *, year: int = 2020, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            info.external_attr = (0o100000 | mode) << 16
            made.writestr(info, content)
    return path


FILES = {"a.py": b"a", "b.py": b"b"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"files": dict(reversed(FILES.items()))}, "another order"),
        ({"files": FILES, "year": 2021}, "other dates"),
        ({"files": FILES, "mode": 0o600}, "other modes"),
    ],
)
def test_wheels_with_the_same_files_differ_in_their_looks(tmp_path: Path, changed: dict, expected: str) -> None:
    one, other = archive(tmp_path / "1" / "x.whl", FILES), archive(tmp_path / "2" / "x.whl", **changed)
    assert explained(one, other, PLACES) == [f"the same files with {expected}"]


def test_every_member_that_differs_is_named(tmp_path: Path) -> None:
    one = archive(tmp_path / "1" / "x.whl", {**FILES, "only.py": b"", "c.so": b"\0/site/one/c\0"})
    other = archive(tmp_path / "2" / "x.whl", {**FILES, "new.py": b"", "b.py": b"bb", "c.so": b"\0/site/another/c\0"})
    assert explained(one, other, PLACES) == [
        "only.py: only in the first",
        "new.py: only in the second",
        "b.py: first at byte 1: the end of the file against 'bb', 1 against 2 bytes",
        "c.so: first at byte 7: '/site/one/c' against '/site/another/c', which looks like a path, 13 against 17 bytes, "
        "it holds the folder that it was built in",
    ]


def test_the_values_of_a_document_that_differ_are_named_by_their_place(tmp_path: Path) -> None:
    paths = []
    for name, value in (("1", "a"), ("2", "b")):
        paths.append(tmp_path / name / "manifest.json")
        paths[-1].parent.mkdir()
        paths[-1].write_text(json.dumps({"artifacts": [{"sha256": value}, 1], name: 1}))
    assert explained(*paths, PLACES) == [
        'artifacts[0].sha256: "a" against "b"',
        "1: 1 against null",
        "2: null against 1",
    ]


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    one = archive(tmp_path / "1" / "x.whl", {f"{number:02}.py": b"" for number in range(20)})
    lines = explained(one, archive(tmp_path / "2" / "x.whl", {}), PLACES)
    assert (len(lines), lines[-1]) == (9, "and 12 more")


def test_a_file_that_one_build_did_not_make_is_said(tmp_path: Path) -> None:
    one, other = archive(tmp_path / "first" / "x.whl", FILES), tmp_path / "second" / "x.whl"
    assert explained(one, other, PLACES) == ["the second build did not make it"]


def results(folder: Path, *builds: Mapping[str, str]) -> list[Path]:
    for number, files in enumerate(builds):
        for name, text in files.items():
            (folder / str(number)).mkdir(exist_ok=True)
            (folder / str(number) / name).write_text(text)
    return [folder / str(number) for number in range(len(builds))]


@pytest.mark.parametrize(("pinned", "lowest"), [(True, Level.INPUTS), (False, Level.UNPINNED)])
def test_levels_are_what_was_seen(tmp_path: Path, pinned: bool, lowest: Level) -> None:
    first = {"equal": "1", "path": "/a", "clock": "1", "gone": "1"}
    second = {"equal": "1", "path": "/b", "clock": "2", "new": "1"}
    third = {"equal": "1", "path": "/a", "clock": "3", "gone": "1"}
    found = compare(results(tmp_path, first, second, third), pinned=pinned, common=BuildPaths.of([]))
    assert {result.file: result.level for result in found} == {
        "equal": Level.DIFFERENT_PATH,
        "path": Level.SAME_PATH,
        "clock": lowest,
        "gone": Level.SAME_PATH,
        "new": lowest,
    }


def test_a_folder_that_both_builds_shared_is_no_proof(tmp_path: Path) -> None:
    both = {"clean": "#!python", "shebang": "#!/home/me/project/.nox/bin/python", "longer": "/home/me/projects"}
    found = compare(results(tmp_path, both, both), pinned=True, common=BuildPaths.of(["/home/me/project"]))
    assert {result.file: (result.level, result.held) for result in found} == {
        "clean": (Level.DIFFERENT_PATH, ()),
        "longer": (Level.DIFFERENT_PATH, ()),
        "shebang": (Level.SAME_PATH, ("/home/me/project",)),
    }


def test_diffoscope_is_asked_where_it_is_and_its_text_is_kept(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path / "project", "mini")
    layout.root.mkdir()
    one, other = archive(tmp_path / "1" / "x.whl", FILES), archive(tmp_path / "2" / "x.whl", {})
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert by_diffoscope(layout, one, other, console) is None
    program = tmp_path / "bin" / "diffoscope"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$3 $4" > "$2"\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    line = by_diffoscope(layout, one, other, console)
    assert line == "diffoscope: see .cache/logs/repro-mini-x.whl.diffoscope.txt"
    assert (layout.logs / "repro-mini-x.whl.diffoscope.txt").read_text() == f"{one} {other}\n"
    program.write_text("#!/bin/sh\nexit 2\n")
    failed = by_diffoscope(layout, one, other, console)
    assert failed == "diffoscope ended with 2: see .cache/logs/repro-mini-diffoscope.log"
