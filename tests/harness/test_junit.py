"""`junit.xml` says what the verdict says, in the words of the terminal, whatever bytes a log holds."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness.credentials import NO_CREDENTIALS
from harness.report import junit
from harness.report.failure import check_body, failure_body
from harness.report.verdict import Outcome, judge_run
from tests.harness.event_factory import Fields, failure, passing_run, run_config, without

SOUND = passing_run()
FAILED = without(SOUND, "generation", when="after")
ENDED = [*SOUND[:-14], failure().fields(), *(event for event in SOUND if event["kind"] == "teardown")]
STATUS_OF_CHILD = {"failure": "fail", "skipped": "skip", "system-out": "pass"}


def rendered(run: list[Fields], run_dir: Path = Path("runs/x")) -> tuple[ET.Element, Outcome]:
    outcome = judge_run(run, run_config(run_dir))
    (suite,) = ET.fromstring(junit.render(outcome, NO_CREDENTIALS.conceal))
    return suite, outcome


def statuses(suite: ET.Element) -> dict[str, str]:
    """Status by test case, read back from the document alone."""
    return {
        case.attrib["name"]: STATUS_OF_CHILD[case[0].tag]
        for case in suite.iter("testcase")
        if case.attrib["name"] != junit.RUN_CASE
    }


@pytest.mark.parametrize("run", [SOUND, FAILED, ENDED, []], ids=["pass", "fail", "error", "nothing"])
def test_each_check_is_one_test_case_with_the_verdicts_status(run: list[Fields]) -> None:
    suite, outcome = rendered(run)
    assert statuses(suite) == {check.id: check.status for check in outcome.verdict.checks}


@pytest.mark.parametrize("run", [SOUND, FAILED, ENDED], ids=["pass", "fail", "error"])
def test_the_suite_counts_its_cases(run: list[Fields]) -> None:
    suite, _ = rendered(run)
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(list(suite.iter(tag)))


def test_a_failed_check_reads_as_on_the_terminal() -> None:
    suite, outcome = rendered(FAILED)
    (check,) = outcome.verdict.failed()
    (element,) = suite.iter("failure")
    assert element.attrib["message"] == check.why
    assert element.text is not None
    assert check_body(check) in element.text


def test_a_run_that_ended_early_is_an_error_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "engine-0.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(b"line %d \x1b[31mred\x1b[0m \x00\x07\xff <&>]]>\r\n" % number for number in range(50)))
    suite, outcome = rendered([failure(log=str(log)).fields()], tmp_path)
    assert outcome.failure is not None
    (element,) = suite.iter("error")
    assert element.attrib == {"message": outcome.failure.what, "type": "refit"}
    text = element.text or ""
    assert failure_body(outcome.failure, tmp_path, NO_CREDENTIALS.conceal) in text
    assert "line 10 red \N{REPLACEMENT CHARACTER} <&>]]>" in text
    assert "line 9 " not in text
    assert "last 40 lines" in text


def test_the_properties_name_stack_versions_and_times() -> None:
    suite, _ = rendered(SOUND)
    properties = {item.attrib["name"]: item.attrib["value"] for item in suite.iter("property")}
    assert properties["policy_versions"] == "0 1 2 3 4"
    assert properties["verdict"] == "pass"
    assert properties["seconds.ready"] == "31.2"
    assert properties["seconds.refit"] == "0.1 0.11 0.12 0.13 0.14"
