"""What a check of the doctor may be and say; and all checks, against the reported failures."""

from __future__ import annotations

import pytest
from doctor_itself import check

from scripts.doctor import checks
from scripts.doctor.registry import GROUPS, Finding, ok, skip, warn
from scripts.doctor.reports import REPORTS


def test_what_is_wrong_comes_with_a_fix_and_what_is_right_without() -> None:
    assert (ok("1", "1").fix, skip("no GPU").status) == ("", "skip")
    for wrong in (
        lambda: Finding("fail", "1", "2"),
        lambda: Finding("ok", "1", "1", "mend it"),
        lambda: warn("1", "2", ""),
    ):
        with pytest.raises(ValueError, match="fix"):
            wrong()
    with pytest.raises(ValueError, match="is none of"):
        Finding("fine", "1", "1")
    with pytest.raises(ValueError, match="what was found"):
        ok("", "1")


@pytest.mark.parametrize(
    ("name", "needed_for", "message"),
    [
        ("toy", ("run",), "not named GROUP.NAME"),
        ("other.toy", ("run",), "not named GROUP.NAME"),
        ("host.toy", (), "names none of"),
        ("host.toy", ("sleep",), "names none of"),
    ],
)
def test_a_check_has_a_proper_name_and_purpose(name: str, needed_for: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(lambda _: ok("1", "1"), name, needed_for)


def test_every_check_is_there_once_and_can_be_documented() -> None:
    names = [each.id for each in checks.CHECKS]
    assert len(names) == len(set(names))
    assert {each.group for each in checks.CHECKS} == set(GROUPS)
    assert [each.id for each in checks.CHECKS if not each.fix] == []
    assert [each.id for each in checks.CHECKS if any(text.endswith(".") for text in (each.why, each.title))] == []


def test_every_reported_failure_is_looked_at_or_says_why_not() -> None:
    covered = {row for each in checks.CHECKS for row in each.rows}
    assert [report.row for report in REPORTS] == list(range(1, 33))
    assert {report.row for report in REPORTS if not report.elsewhere} == covered
    assert {report.row for report in REPORTS if report.elsewhere} == {25}
