"""The doctor's answers: the document as its schema says, and the table."""

from __future__ import annotations

import json

import jsonschema
import pytest
from doctor_itself import SCHEMA, results_of

from scripts.doctor import report
from scripts.doctor.registry import fail, ok, skip, warn


def test_the_document_is_as_its_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(
        report.document(results_of(ok("1", "1"), warn("1", "2", "a"), fail("1", "2", "b"), skip("no")))
    )
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert set(document) == {"checks"}
    assert list(document["checks"][0]) == ["id", "status", "found", "required", "why", "fix", "reference"]
    for name, value in (("fix", ""), ("status", "fine"), ("reference", "ftp://x"), ("id", "toy"), ("extra", "1")):
        spoiled = json.loads(json.dumps(document))
        spoiled["checks"][2][name] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(spoiled)


def test_the_table_shows_a_fix_on_a_line_of_its_own_and_a_verdict_at_the_end() -> None:
    results = results_of(ok("one", "1"), fail("none", "one toy", "mend toys"), skip("no GPU"), skip("no GPU"))
    lines = report.table(results, "mini", None, 0.25).splitlines()
    assert lines[0] == "doctor: stack mini, build, install, run"
    assert "        fix   mend toys" in lines
    assert "        needs one toy" in lines
    assert "  skip  no GPU: toy, toy" in lines
    assert lines[-1] == "FAIL  1 failed, 0 to know about, 1 ok, 2 skipped (0.2 s)"
    assert "\x1b" not in "".join(lines)


def test_colour_changes_nothing_but_the_colour() -> None:
    results = results_of(ok("one", "1"), warn("1", "2", "a"), fail("none", "1", "b"), skip("no GPU"))
    coloured = report.table(results, "mini", "run", 0.1, colour=True)
    plain = report.table(results, "mini", "run", 0.1)
    assert coloured != plain
    for code in ("\x1b[32m", "\x1b[33m", "\x1b[31;1m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain
