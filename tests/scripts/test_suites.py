"""All suites in a row: the options select in each, and only a selection of nothing at all is a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.layout import PROJECT_ROOT
from scripts.suites import NOTHING_SELECTED, PARTS, Part, run_all


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Two suites with one test each, and between them a command that takes no options."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"test_{name}.py").write_text(f"def test_{name}():\n    pass\n")
    pytest_on = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    between = (sys.executable, "-c", "import sys; sys.exit(len(sys.argv) - 1)")
    return [
        Part((*pytest_on, str(tmp_path / "first"))),
        Part(between, selects=False),
        Part((*pytest_on, str(tmp_path / "second"))),
    ]


@pytest.mark.parametrize("selection", ["first", "second", "first or second"])
def test_a_suite_that_a_selection_leaves_empty_is_no_failure(suites: list[Part], selection: str) -> None:
    assert run_all(suites, ["-k", selection]) == 0


def test_a_selection_that_leaves_every_suite_empty_is_one(suites: list[Part]) -> None:
    assert run_all(suites, ["-k", "a_name_with_a_slip"]) == NOTHING_SELECTED


def test_a_suite_without_tests_is_a_failure_when_nothing_was_selected(suites: list[Part], tmp_path: Path) -> None:
    (tmp_path / "second" / "test_second.py").unlink()
    assert run_all(suites, []) == NOTHING_SELECTED


def test_the_first_failure_is_the_end_and_its_status_the_answer(suites: list[Part], tmp_path: Path) -> None:
    (tmp_path / "first" / "test_first.py").write_text("def test_first():\n    assert False\n")
    mark = tmp_path / "mark"
    after = Part((sys.executable, "-c", f"open({str(mark)!r}, 'w')"), selects=False)
    assert run_all([suites[0], after], []) == 1
    assert not mark.exists()


def test_a_failed_install_is_a_failure_whatever_was_selected(suites: list[Part]) -> None:
    failed = Part((sys.executable, "-c", "import sys; sys.exit(20)"), selects=False)
    assert run_all([suites[0], failed, suites[2]], []) == 20


def test_every_file_of_tests_is_in_exactly_one_suite() -> None:
    folders = (PROJECT_ROOT / "smoke", PROJECT_ROOT / "tests")
    files = {path.relative_to(PROJECT_ROOT) for folder in folders for path in folder.rglob("test_*.py")}
    # The payload's tests are named by `payload_tests`, which runs them in the stack's environment.
    ours = {file for file in files if not file.is_relative_to("tests/payload")}
    assert {file: sum(_has(part, file) for part in PARTS) for file in ours} == dict.fromkeys(ours, 1)
    assert any("scripts.payload_tests" in part.argv for part in PARTS)


def _has(part: Part, file: Path) -> bool:
    """Whether a suite names the file or a folder that it is in, and does not ignore it."""
    ignored = {value for option, value in pairwise(part.argv) if option == "--ignore"}
    above = {str(path) for path in (file, *file.parents)}
    return bool(above & set(part.argv) - ignored) and not above & ignored


def test_an_order_to_stop_is_the_suites_own_business_and_is_waited_for(tmp_path: Path) -> None:
    suite = tmp_path / "suite.py"
    suite.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('cleaned up', flush=True), sys.exit(7)))\n"
        "print('started', flush=True)\n"
        "signal.pause()\n"
    )
    code = (
        "import sys; from scripts.suites import Part, run_all; "
        f"sys.exit(run_all([Part(({sys.executable!r}, {str(suite)!r}))], []))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, env=os.environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "cleaned up\n"
    assert process.returncode == 7
