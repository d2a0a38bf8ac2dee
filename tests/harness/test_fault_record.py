"""The page of the fault suite says what was found: counts, times, and each fault that did not end as it must."""

from __future__ import annotations

import re
from pathlib import Path

from smoke.faults.record import Record, machine, write


def record() -> Record:
    made = Record()
    for case, seconds in (("first", 1.0), ("second", 4.0), ("third", 2.0)):
        one = made.begin("F09", case)
        one.seconds, one.outcome = seconds, "exit 40, service-died"
    survived = made.begin("F12", "etcd stopped")
    survived.recovered, survived.outcome = True, "recovered: pass"
    return made


def test_it_counts_and_measures() -> None:
    page = record().page()
    for row in (
        "| faults provoked | 4 |",
        "| ended as they must | 4: 3 detected, 1 recovered from |",
        "| median seconds to detection | 2.0 |",
        "| slowest detection in seconds | 4.0 |",
        "| survivors | 0 |",
        "| F09 | second | 4.0 | exit 40, service-died |",
        "| F12 | etcd stopped | - | recovered: pass |",
    ):
        assert row in page.splitlines()


def test_what_was_not_detected_shows_and_survivors_are_added_up() -> None:
    made = record()
    missed = made.begin("F01", "unknown name")
    missed.survivors = 2
    page = made.page().splitlines()
    assert "| ended as they must | 4: 3 detected, 1 recovered from |" in page
    assert "| faults provoked | 5 |" in page
    assert "| survivors | 2 |" in page
    assert "| F01 | unknown name | - | **not as it must be** |" in page


def test_every_table_is_one_and_nothing_is_known_of_nothing(tmp_path: Path) -> None:
    write(Record(), tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| median seconds to detection | - |" in page
    tables = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    assert [len({line.count("|") for line in table}) for table in tables] == [1, 1]


def test_the_machine_is_described_without_its_name() -> None:
    assert re.fullmatch(r"\d+ cores, \d+ GiB, Linux \w+, (no|with a) GPU", machine())
