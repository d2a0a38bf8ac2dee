"""Wheels: the same contents are the same bytes, wherever they are written."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import wheels
from scripts.errors import BuildError
from scripts.layout import PROJECT_ROOT

INFO = "demo-1.0.dist-info"
WRITE = """
import sys
from pathlib import Path
from scripts import wheels
info = "demo-1.0.dist-info"
texts = {"z.py": "1", "a/b.py": "2", f"{info}/METADATA": "m"}
wheels.write(Path(sys.argv[1]), [wheels.text_member(name, text) for name, text in texts.items()], info)
"""


def write(target: Path, texts: dict[str, str]) -> Path:
    wheels.write(target, [wheels.text_member(name, text) for name, text in texts.items()], INFO)
    return target


def test_bytes_do_not_depend_on_umask_time_zone_or_folder(tmp_path: Path) -> None:
    digests = set()
    for number, (umask, zone) in enumerate((("022", "UTC"), ("077", "Asia/Kathmandu"), ("000", "America/St_Johns"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        subprocess.run(
            ["sh", "-c", f'umask {umask}; exec "$@"', "sh", sys.executable, "-c", WRITE, "demo.whl"],
            cwd=folder,
            env={"TZ": zone, "PYTHONPATH": str(PROJECT_ROOT), "PYTHONHASHSEED": str(number)},
            check=True,
        )
        digests.add(hashlib.sha256((folder / "demo.whl").read_bytes()).hexdigest())
    # The digest itself, so that another Python or another host that writes other bytes is seen.
    assert digests == {"d5cc7853895c40eccbbb5ed23eb88e813094fed22c523b67e1bc2c9a6a84db5b"}


def test_order_of_arrival_does_not_matter(tmp_path: Path) -> None:
    texts = {"b.py": "b", f"{INFO}/METADATA": "m", "a.py": "a"}
    one = write(tmp_path / "one.whl", texts)
    two = write(tmp_path / "two.whl", dict(reversed(texts.items())))
    assert one.read_bytes() == two.read_bytes()


def test_members_are_stored_sorted_dated_alike_with_the_metadata_last(tmp_path: Path) -> None:
    wheel = write(tmp_path / "x.whl", {"z.py": "z", f"{INFO}/METADATA": "m", "a.py": "a"})
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == ["a.py", "z.py", f"{INFO}/METADATA", f"{INFO}/RECORD"]
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}


def test_only_executables_have_the_executable_bit(tmp_path: Path) -> None:
    tool = wheels.Member("tool", True, wheels.text_member("", "#!/bin/sh\n").open)
    wheels.write(tmp_path / "x.whl", [tool, wheels.text_member("data", "")], INFO)
    with zipfile.ZipFile(tmp_path / "x.whl") as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
    assert modes == {"tool": 0o755, "data": 0o644, f"{INFO}/RECORD": 0o644}


def test_record_lists_every_file_with_its_digest_and_size(tmp_path: Path) -> None:
    texts = {"a,with comma.py": "a", "b.py": "β" * 1000, "empty": ""}
    wheel = write(tmp_path / "x.whl", texts)
    record = wheels.read_record(wheel, "demo", "1.0")
    assert record == {
        name: wheels.RecordLine(hashlib.sha256(text.encode()).hexdigest(), len(text.encode()))
        for name, text in texts.items()
    }


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="same file twice"):
        wheels.write(tmp_path / "x.whl", [wheels.text_member("a", "1"), wheels.text_member("a", "2")], INFO)


def test_a_member_with_another_digest_than_pinned_is_refused(tmp_path: Path) -> None:
    other = wheels.Member("tool", True, wheels.text_member("", "x").open, sha256="0" * 64)
    with pytest.raises(BuildError, match="not the pinned file") as caught:
        wheels.write(tmp_path / "x.whl", [other], INFO)
    assert caught.value.expected == f"sha256:{'0' * 64}"
    assert caught.value.found == hashlib.sha256(b"x").hexdigest()


def test_headers_are_replaced_in_the_header_section_only() -> None:
    text = "Name: old\nVersion: 1\nSummary: Name: x\n\nName: body\n"
    assert wheels.with_headers(text, {"Name": "new"}) == "Name: new\nVersion: 1\nSummary: Name: x\n\nName: body\n"


@pytest.mark.parametrize("text", ["Version: 1\n\n", "Name: a\nName: b\n\n"])
def test_a_header_that_is_absent_or_doubled_is_refused(text: str) -> None:
    with pytest.raises(BuildError, match="lines 'Name'"):
        wheels.with_headers(text, {"Name": "new"})


def test_the_tag_of_a_file_name_survives_dots_and_labels() -> None:
    name = Path("vllm-0.32.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl")
    assert wheels.file_tag(name) == "cp38-abi3-manylinux_2_28_x86_64"
