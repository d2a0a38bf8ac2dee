"""The page of the fault suite says what was found: counts, times, and each fault that did not end as it must.

And it says nothing else: what a hand changes in it is noticed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smoke.faults import page as pages
from smoke.faults.page import PAGE, PageError, check, main, parse, render, write
from smoke.faults.record import Record, Subject, machine, processor, revision
from smoke.runner import ROOT
from tests.scripts.upstream import git

HERE = Subject("4711" * 10, "2 cores (AuthenticAMD family 26, AVX-512), 23 GiB, Linux x86_64, no GPU")


def record() -> Record:
    made = Record()
    for case, seconds in (("first", 1.04), ("second", 4.0), ("third", 2.0)):
        one = made.begin("F09", case)
        one.seconds, one.outcome = seconds, "exit 40, service-died"
    survived = made.begin("F12", "etcd stopped")
    survived.recovered, survived.outcome = True, "recovered: pass"
    return made


def test_it_counts_and_measures() -> None:
    page = render(record(), HERE).splitlines()
    for row in (
        "| faults provoked | 4 |",
        "| ended as they must | 4: 3 detected, 1 recovered from |",
        "| median seconds to detection | 2.0 |",
        "| slowest detection in seconds | 4.0 |",
        "| survivors | 0 |",
        f"| revision | {HERE.revision} |",
        f"| machine | {HERE.machine} |",
        "| F09 | first | 1.0 | exit 40, service-died | 0 |",
        "| F12 | etcd stopped | - | recovered: pass | 0 |",
    ):
        assert row in page


def test_what_was_not_detected_shows_and_survivors_are_added_up() -> None:
    made = record()
    missed = made.begin("F01", "unknown name")
    missed.survivors = 2
    made.begin("F02", "refused").survivors = 1
    page = render(made, HERE).splitlines()
    assert "| ended as they must | 4: 3 detected, 1 recovered from |" in page
    assert "| faults provoked | 6 |" in page
    assert "| survivors | 3 |" in page
    assert "| F01 | unknown name | - | **not as it must be** | 2 |" in page


def test_every_table_is_one_and_nothing_is_known_of_nothing() -> None:
    page = render(Record(), HERE)
    assert "| median seconds to detection | - |" in page
    tables = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    assert [len({line.count("|") for line in table}) for table in tables] == [1, 1]


def test_a_page_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write(record(), HERE, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    check(text)
    read, where = parse(text)
    assert where == HERE
    assert render(read, where) == text
    assert main(tmp_path / "page.md") == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("| F09 | second | 4.0 |", "| F09 | second | 1.0 |"),
        ("| faults provoked | 4 |", "| faults provoked | 40 |"),
        ("| survivors | 0 |", "| survivors |  0 |"),
        ("do not edit", "edit"),
        ("| F12 | etcd stopped | - | recovered: pass | 0 |\n", ""),
        ("family 26", "family 25"),
        ("47114711", "08150815"),
        ("<!-- sealed", "\n<!-- sealed"),
    ],
)
def test_what_a_hand_changed_is_noticed(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = render(record(), HERE)
    assert before in text
    changed = tmp_path / "page.md"
    changed.write_text(text.replace(before, after, 1))
    assert main(changed) == 1
    assert "page.md: its seal does not fit" in capsys.readouterr().err


def test_a_seal_made_by_hand_does_not_make_the_numbers_agree() -> None:
    text = render(record(), HERE).replace("| faults provoked | 4 |", "| faults provoked | 9 |")
    body = text[: text.index("<!-- sealed")]
    with pytest.raises(PageError, match="not what the present code writes"):
        check(f"{body}<!-- sealed: {pages._seal(body)} -->\n")


@pytest.mark.parametrize("text", ["", "# Reliability\n", "<!-- sealed: 0 -->\n"])
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(PageError):
        check(text)


def collected(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "faults", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_page_in_the_docs_has_a_row_for_each_test_of_the_suite() -> None:
    check(PAGE.read_text(encoding="utf-8"))
    read, _ = parse(PAGE.read_text(encoding="utf-8"))
    tests = [line for line in collected("smoke/faults").stdout.splitlines() if "::" in line]
    assert len(read.injections) == len(tests) > 0
    assert len({(one.fault, one.case) for one in read.injections}) == len(tests)


@pytest.mark.parametrize(
    "part", [("smoke/faults", "-k", "f12"), ("smoke/faults/test_refits.py",), ("smoke/faults", "-x")]
)
def test_a_part_of_the_suite_writes_no_page(part: tuple[str, ...]) -> None:
    refused = collected("--write", *part)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR, refused.stdout
    assert "needs the whole suite" in refused.stdout + refused.stderr


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_whole_suite_may_write_one(processes: str) -> None:
    assert collected("--write", "-n", processes, "smoke/faults").returncode == pytest.ExitCode.OK
    assert not PAGE.exists() or "| faults provoked | 0 |" not in PAGE.read_text()


SUITE = """
import pytest

@pytest.mark.parametrize("number", [1, 2, 3])
def test_one(record, number):
    one = record.begin("F09", f"case {number}")
    assert number != 3
    one.seconds, one.outcome = float(number), "exit 40, service-died"
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_of_the_suite_writes_what_its_tests_found(
    processes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real collector on a suite of its own, in one process and in several."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(folder=str(tmp_path), page=str(tmp_path / "page.md")))
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-m", "", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(
        [*command, "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    text = (tmp_path / "page.md").read_text()
    check(text)
    assert "| ended as they must | 2: 2 detected, 0 recovered from |" in text
    assert "| F09 | case 3 | - | **not as it must be** | 0 |" in text


CONFTEST = """
from pathlib import Path
from smoke.faults import conftest, page
from smoke.faults.conftest import record

conftest.write = lambda found, where: page.write(found, where, Path({page!r}))

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(conftest.Collector())
"""


def test_the_revision_says_whether_files_differ_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    committed = revision(tmp_path)
    assert committed == git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/reliability.md").touch()
    assert revision(tmp_path) == committed, "the page is written by the run itself"
    (tmp_path / "docs/new").touch()
    assert revision(tmp_path) == f"{committed}, with changes"


def test_rows_are_in_one_order_whichever_run_ended_first() -> None:
    made = record()
    assert render(Record(made.injections[::-1]), HERE) == render(made, HERE)


def test_the_machine_is_described_without_its_name() -> None:
    assert re.fullmatch(r"\d+ cores \(\w+ family \w+, [\w -]+\), \d+ GiB, Linux \w+, (no|with a) GPU", machine())


@pytest.mark.parametrize(
    ("cpuinfo", "told"),
    [
        (
            "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu avx2 avx512f\n",
            "AuthenticAMD family 25, AVX-512",
        ),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu avx2\n", "GenuineIntel family 6, AVX2"),
        ("processor\t: 0\n", "unknown maker family unknown, no AVX2"),
    ],
)
def test_a_processor_is_named_by_its_family(cpuinfo: str, told: str) -> None:
    assert processor(cpuinfo) == told


@pytest.mark.skipif(not PAGE.exists(), reason="no whole run of the suite has written it yet")
def test_the_page_of_this_project_is_as_a_run_has_written_it() -> None:
    assert main() == 0
