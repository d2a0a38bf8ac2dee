"""docs/troubleshooting.md is what the registry says, and a change of either is noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.doctor import docs
from scripts.doctor.checks import CHECKS
from scripts.doctor.reports import REPORTS


def test_the_page_is_up_to_date() -> None:
    assert docs.main(["--check"]) == 0


def test_a_stale_page_fails_and_says_how_to_write_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "troubleshooting.md"
    assert docs.main(["--check", "--page", str(page)]) == 1
    assert docs.main(["--write", "--page", str(page)]) == 0
    assert docs.main(["--check", "--page", str(page)]) == 0
    page.write_text(page.read_text().replace("Linux 5.3", "Linux 5.2", 1) + "by hand\n")
    capsys.readouterr()
    assert docs.main(["--check", "--page", str(page)]) == 1
    said = capsys.readouterr().err
    assert "-by hand" in said
    assert said.endswith("fix:      python3 -m scripts.doctor.docs --write\n")


def test_every_check_and_every_report_is_on_it_and_every_link_leads_somewhere() -> None:
    page = docs.page()
    headings = re.findall(r"(?m)^### (.+)$", page)
    assert headings == [check.id for check in CHECKS]
    assert page.count("- **Fix** `") == len(CHECKS)
    assert all(report.symptom in page and report.references[0] in page for report in REPORTS)
    anchors = {re.sub(r"[^a-z0-9-]", "", heading) for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_text_that_looks_like_markdown_stays_text() -> None:
    assert docs._plain("VLLM_* and <x> | y") == r"VLLM_\* and \<x> \| y"
    assert docs._plain("version `GLIBC_2.28' not found") == r"version \`GLIBC_2.28' not found"
    assert docs._plain("`code` stays") == "`code` stays"
