"""`normalise`: whatever a build tool left, the same contents are one wheel; what cannot be made right is refused."""

from __future__ import annotations

import csv
import io
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import built_wheel
import pytest
from built_wheel import INFO, NAME, TAG, cargo_sbom

from scripts import wheels
from scripts.errors import BuildError, UsageError
from scripts.layout import PROJECT_ROOT
from scripts.normalise import normalise

EPOCH = 1_700_000_000
SBOM = f"{INFO}/sboms/demo.cyclonedx.json"


def run(wheel: Path, prefixes: tuple[str, ...] = ()) -> tuple[Path, tuple[str, ...]]:
    target = wheel.parent / "out" / wheel.name
    return target, normalise(wheel, target, epoch=EPOCH, prefixes=prefixes)


def built_in(folder: Path, source: str, number: str, moment: str) -> Path:
    sbom = cargo_sbom(source, number=number, moment=moment)
    return built_wheel.write(folder, built_wheel.contents({SBOM: sbom, "demo/lib.so": b"\x7fELF"}))


def test_two_builds_in_two_folders_at_two_hours_are_one_wheel(tmp_path: Path) -> None:
    one = built_in(tmp_path / "1", "/build/a", "5d00fbdf-8ab1-4284-86d1-bca18c951244", "2026-10-16T23:58:57.502219166Z")
    two = built_in(tmp_path / "2", "/z/q", "7293d3e8-3f8b-4ab2-b38f-810056656e50", "2026-11-01T00:00:00Z")
    assert run(one, ("/build/a",))[0].read_bytes() == run(two, ("/z/q",))[0].read_bytes()


def test_order_dates_modes_compression_and_folders_of_the_zip_do_not_matter(tmp_path: Path) -> None:
    files = built_wheel.contents({"demo/tool": "#!/bin/sh\n", "demo/a.py": "a"})
    one = built_wheel.write(tmp_path / "1", files, modes={"demo/tool": 0o100700}, folders=True)
    other = dict(reversed(files.items()))
    two = built_wheel.write(tmp_path / "2", other, modes={"demo/tool": 0o100775}, date=(1999, 1, 1, 0, 0, 0))
    first, second = run(one)[0], run(two)[0]
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        modes = {info.filename: stat.filemode(info.external_attr >> 16) for info in archive.infolist()}
    assert modes["demo/tool"] == "-rwxr-xr-x"
    assert modes["demo/a.py"] == "-rw-r--r--"
    assert list(modes)[-1] == f"{INFO}/RECORD"


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    wheel = built_in(tmp_path, "/b", "5d00fbdf-8ab1-4284-86d1-bca18c951244", "2026-10-16T23:58:57Z")
    once, _ = run(wheel, ("/b",))
    twice, notes = run(once, ("/b",))
    assert (twice.read_bytes(), notes) == (once.read_bytes(), ())


def test_contents_and_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    files = built_wheel.contents({"demo/crlf.py": "a\r\nb\r\n", "demo/data.bin": bytes(range(256))})
    written = built_wheel.read(run(built_wheel.write(tmp_path, files))[0])
    assert {name: written[name] for name in files} == files


def test_record_lists_every_file_as_it_was_written(tmp_path: Path) -> None:
    wheel = built_in(tmp_path, "/b", "5d00fbdf-8ab1-4284-86d1-bca18c951244", "2026-10-16T23:58:57Z")
    written = built_wheel.read(run(wheel, ("/b",))[0])
    record = written.pop(f"{INFO}/RECORD").decode()
    assert record == built_wheel.record(written)
    assert [row[0] for row in csv.reader(io.StringIO(record))] == [*written, f"{INFO}/RECORD"]


def test_tags_follow_the_name_of_the_file_and_nothing_else_in_wheel_changes(tmp_path: Path) -> None:
    files = built_wheel.contents({}, tag="cp312-cp312-linux_x86_64")
    target, notes = run(built_wheel.write(tmp_path, files))
    before = files[f"{INFO}/WHEEL"]
    assert built_wheel.read(target)[f"{INFO}/WHEEL"] == before.replace(b"cp312-cp312-linux_x86_64", TAG.encode())
    assert notes == (f"WHEEL said cp312-cp312-linux_x86_64; now {TAG}, as the file's name does",)


def test_a_name_with_several_tags_has_a_line_for_each(tmp_path: Path) -> None:
    name = "demo-1.0-py2.py3-none-any.whl"
    target, _ = run(built_wheel.write(tmp_path, built_wheel.contents({}, tag="py3-none-any"), name=name))
    assert b"Tag: py2-none-any\r\nTag: py3-none-any\r\n\r\n" in built_wheel.read(target)[f"{INFO}/WHEEL"]
    assert run(target)[1] == ()


def test_what_an_installer_would_write_is_left_out(tmp_path: Path) -> None:
    files = built_wheel.contents({f"{INFO}/direct_url.json": '{"url": "file:///build"}', f"{INFO}/INSTALLER": "pip"})
    target, notes = run(built_wheel.write(tmp_path, files))
    assert not {f"{INFO}/direct_url.json", f"{INFO}/INSTALLER"} & built_wheel.read(target).keys()
    assert [note for note in notes if "direct_url.json" in note]


@pytest.mark.parametrize(
    "content", [b"\0/build/place/src/lib.rs\0", b"see /build/place", b"file:%2F%2F/build%2Fplace/"]
)
def test_a_build_path_that_stays_in_a_file_is_named(tmp_path: Path, content: bytes) -> None:
    wheel = built_wheel.write(tmp_path, built_wheel.contents({"demo/lib.so": content}))
    _, notes = run(wheel, ("/build/place", "/elsewhere"))
    assert notes == ("warning: the build path /build/place is left in demo/lib.so: other folders, other bytes",)


def test_a_build_path_across_two_reads_is_found_and_a_longer_name_is_not_one(tmp_path: Path) -> None:
    across = bytes(2**20 - 5) + b"/build/place/x"
    longer = bytes(2**20 - len("/build/place")) + b"/build/places"
    files = built_wheel.contents({"demo/across.so": across, "demo/longer.so": longer})
    _, notes = run(built_wheel.write(tmp_path, files), ("/build/place",))
    assert notes == ("warning: the build path /build/place is left in demo/across.so: other folders, other bytes",)


def test_a_build_path_behind_a_link_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    wheel = built_wheel.write(tmp_path, built_wheel.contents({"demo/lib.so": f"{tmp_path}/real/x"}))
    _, notes = run(wheel, (str(tmp_path / "link"),))
    assert [note for note in notes if f"{tmp_path}/real is left in demo/lib.so" in note]


@pytest.mark.parametrize("prefix", ["/", "//", "build", "", "/.."])
def test_a_prefix_that_would_match_anything_is_refused(tmp_path: Path, prefix: str) -> None:
    wheel = built_wheel.write(tmp_path, built_wheel.contents({}))
    with pytest.raises(UsageError, match="build path"):
        run(wheel, (prefix,))


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.py", "demo/../../up.py", "demo/./x.py", "demo//x.py"])
@pytest.mark.parametrize("wrap", [str, lambda name: name.replace("/", "\\")])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str, wrap: Callable[[str], str]) -> None:
    assert_refused(built_wheel.write(tmp_path, built_wheel.contents({wrap(name): "x"})), "leaves the folder")


@pytest.mark.parametrize("name", ["C:/x.py", "demo/new\nline.py", "demo/tab\t.py"])
def test_a_name_that_reads_differently_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    assert_refused(built_wheel.write(tmp_path, built_wheel.contents({name: "x"})), "reads differently")


def test_a_link_is_refused(tmp_path: Path) -> None:
    files = built_wheel.contents({"demo/link": "/etc/passwd"})
    assert_refused(built_wheel.write(tmp_path, files, modes={"demo/link": 0o120777}), "symbolic link")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    files = built_wheel.contents({"demo/pipe": ""})
    assert_refused(built_wheel.write(tmp_path, files, modes={"demo/pipe": stat.S_IFIFO | 0o644}), "is no file")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    wheel = built_wheel.write(tmp_path, built_wheel.contents({"demo/a.py": "a"}))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("demo/a.py", "b")
    assert_refused(wheel, "same file twice")


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    assert_refused(built_wheel.write(tmp_path, built_wheel.contents({"demo/a": "", "demo/a/b": ""})), "both a file and")


@pytest.mark.parametrize("name", ["METADATA", "WHEEL", "entry_points.txt", "sboms/x.cyclonedx.json"])
def test_metadata_that_is_not_utf8_is_refused(tmp_path: Path, name: str) -> None:
    files = built_wheel.contents({f"{INFO}/{name}": b"Name: d\xe9mo\n"})
    assert_refused(built_wheel.write(tmp_path, files), "is not UTF-8")


def test_a_name_of_unknown_encoding_is_refused(tmp_path: Path) -> None:
    wheel = built_wheel.write(tmp_path, built_wheel.contents({"demo/é.py": "x"}))
    # The flag that says UTF-8, in the entry and in the directory at the end.
    wheel.write_bytes(wheel.read_bytes().replace(b"\x00\x08\x08\x00", b"\x00\x00\x08\x00"))
    assert_refused(wheel, "not UTF-8")


def test_a_file_that_changed_after_record_was_written_is_refused(tmp_path: Path) -> None:
    files = built_wheel.contents({"demo/a.py": "a"})
    told = built_wheel.record({**files, "demo/a.py": b"b"})
    assert_refused(built_wheel.write(tmp_path, files, told=told), "not what the wheel's RECORD says")


@pytest.mark.parametrize("change", [{"demo/more.py": b""}, {}])
def test_a_record_with_other_files_than_the_wheel_is_refused(tmp_path: Path, change: dict[str, bytes]) -> None:
    files = built_wheel.contents({"demo/a.py": "a"})
    told = built_wheel.record({**files, **change} if change else built_wheel.contents({}))
    assert_refused(built_wheel.write(tmp_path, files, told=told), "does not list its files")


def test_a_signed_wheel_is_refused(tmp_path: Path) -> None:
    assert_refused(built_wheel.write(tmp_path, built_wheel.contents({f"{INFO}/RECORD.jws": "{}"})), "is signed")


def test_metadata_of_another_release_is_refused(tmp_path: Path) -> None:
    name = NAME.replace("1.0", "2.0")
    assert_refused(built_wheel.write(tmp_path, built_wheel.contents({}), name=name), "another release")


def test_two_metadata_folders_are_refused(tmp_path: Path) -> None:
    files = built_wheel.contents({"demo-2.0.dist-info/METADATA": ""})
    assert_refused(built_wheel.write(tmp_path, files), "not one metadata folder")


@pytest.mark.parametrize("position", [0.3, 0.9])
def test_a_damaged_wheel_is_refused(tmp_path: Path, position: float) -> None:
    wheel = built_wheel.write(tmp_path, built_wheel.contents({"demo/a.bin": os.urandom(5000)}))
    content = bytearray(wheel.read_bytes())
    content[int(len(content) * position)] ^= 0xFF
    wheel.write_bytes(content)
    with pytest.raises(BuildError) as caught:
        run(wheel)
    assert caught.value.where == str(wheel)


def assert_refused(wheel: Path, what: str) -> None:
    with pytest.raises(BuildError, match=what) as caught:
        run(wheel)
    assert caught.value.where == str(wheel)
    assert not list((wheel.parent / "out").iterdir() if (wheel.parent / "out").exists() else ())


def command(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "scripts.normalise", *map(str, arguments)]
    env = {**os.environ, **environ}
    return subprocess.run(argv, cwd=PROJECT_ROOT, env=env, capture_output=True, text=True, check=False)


def test_the_command_takes_the_one_wheel_of_a_folder(tmp_path: Path) -> None:
    wheel = built_in(tmp_path / "raw", "/b", "5d00fbdf-8ab1-4284-86d1-bca18c951244", "2026-10-16T23:58:57Z")
    done = command(wheel.parent, tmp_path / "out", "--epoch", str(EPOCH), "--prefix", "/b", "--prefix", "/c")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"dated and numbered {SBOM} anew, without build paths\n"
    assert (tmp_path / "out" / NAME).read_bytes() == run(wheel, ("/b",))[0].read_bytes()


def test_the_command_says_what_is_wrong_and_writes_nothing(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    first = built_wheel.write(raw, built_wheel.contents({"../up": "x"}))
    refused = command(first, tmp_path / "out", "--epoch", "0")
    built_wheel.write(raw, built_wheel.contents({}), name=NAME.replace("1.0", "2.0"))
    two = command(raw, tmp_path / "out", "--epoch", "0")
    same = command(first, raw, "--epoch", "0")
    assert (refused.returncode, two.returncode, same.returncode) == (20, 20, 2)
    assert "'../up'" in refused.stderr
    assert "not one wheel" in two.stderr
    assert not (tmp_path / "out").exists()


def test_what_is_written_is_a_wheel_that_the_project_reads(tmp_path: Path) -> None:
    target, _ = run(built_wheel.write(tmp_path, built_wheel.contents({"demo/a.py": "a"})))
    record = wheels.read_record(target, "demo", "1.0")
    assert record["demo/a.py"].size == 1
