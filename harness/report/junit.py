"""`junit.xml`: the verdict in the form that CI servers read. One test case for each check, and one for the run.

The texts are those of the terminal (`report.failure`), so that a reader of the CI page misses nothing.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

from harness.plaintext import plain
from harness.report.comparison import Control
from harness.report.failure import check_body, check_headline, failure_body, failure_headline
from harness.report.side_by_side import ending_line
from harness.report.verdict import Outcome

CONTROL_CASE = "control"
"""The test case that stands for the control of a run that has one."""

RUN_CASE = "run"
"""The test case that stands for the run as a whole; it is there only when the run ended early."""


def render(outcome: Outcome, conceal: Callable[[str], str]) -> bytes:
    """The document, UTF-8 encoded, with an XML declaration. For `conceal` see `failure_body`."""
    verdict = outcome.verdict
    statuses = [check.status for check in verdict.checks]
    errors = 0 if outcome.failure is None else 1
    control = verdict.control
    worse = int(control is not None and control.verdict != "pass")
    counts = {
        "tests": str(len(statuses) + errors + int(control is not None)),
        "failures": str(statuses.count("fail") + worse),
        "errors": str(errors),
        "skipped": str(statuses.count("skip")),
        "time": f"{verdict.phases.total:.3f}",
    }
    suites = ET.Element("testsuites", {"name": "smokestack", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": f"smokestack.{verdict.stack}", **counts})
    _add_properties(suite, outcome)
    if outcome.failure is not None:
        _add_run_error(suite, outcome, conceal)
    for check in verdict.checks:
        case = _add_case(suite, outcome, check.id)
        if check.status == "fail":
            failure = ET.SubElement(case, "failure", {"message": plain(check.why), "type": "check"})
            failure.text = f"{check_headline(check)}\n{check_body(check)}\n"
        elif check.status == "skip":
            ET.SubElement(case, "skipped", {"message": plain(check.why)})
        else:
            ET.SubElement(case, "system-out").text = f"{check_body(check)}\n"
    if control is not None:
        _add_control(suite, outcome, control)
    ET.indent(suites)
    document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_properties(suite: ET.Element, outcome: Outcome) -> None:
    verdict = outcome.verdict
    values: dict[str, object] = {
        "verdict": verdict.verdict,
        "stack": verdict.stack,
        "model": verdict.model,
        "steps": verdict.steps,
        "policy_versions": " ".join(map(str, verdict.policy_versions)),
        "run_dir": outcome.run_dir,
        "exit_code": outcome.exit_code,
        **({"sabotage": verdict.sabotage} if verdict.sabotage else {}),
        **({"trainer": verdict.trainer} if verdict.trainer else {}),
        **({"not_judged": " ".join(verdict.not_judged)} if verdict.not_judged else {}),
    }
    for name, seconds in verdict.phases.model_dump(exclude={"refit"}).items():
        if seconds is not None:
            values[f"seconds.{name}"] = seconds
    values["seconds.refit"] = " ".join("-" if value is None else f"{value:g}" for value in verdict.phases.refit)
    properties = ET.SubElement(suite, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", {"name": name, "value": plain(str(value))})


def _add_run_error(suite: ET.Element, outcome: Outcome, conceal: Callable[[str], str]) -> None:
    failure = outcome.failure
    assert failure is not None
    case = _add_case(suite, outcome, RUN_CASE)
    error = ET.SubElement(case, "error", {"message": plain(failure.what), "type": failure.kind})
    error.text = f"{failure_headline(failure)}\n{failure_body(failure, outcome.run_dir, conceal)}\n"


def _add_control(suite: ET.Element, outcome: Outcome, control: Control) -> None:
    """The control as a whole; its own folder has a document with each of its checks."""
    case = _add_case(suite, outcome, CONTROL_CASE)
    _, facts = ending_line(control)
    if control.verdict == "pass":
        ET.SubElement(case, "system-out").text = f"{plain(facts)}\n"
    else:
        failure = ET.SubElement(case, "failure", {"message": plain(facts), "type": "control"})
        failure.text = f"{plain(facts)}\nsee {control.run_dir}/junit.xml\n"


def _add_case(suite: ET.Element, outcome: Outcome, name: str) -> ET.Element:
    attributes = {"classname": f"smokestack.{outcome.verdict.stack}", "name": name}
    return ET.SubElement(suite, "testcase", attributes)
