"""All suites in a row: the options select in each, and only a selection of nothing at all is a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.layout import PROJECT_ROOT
from scripts.options import INVOKED_FROM
from scripts.suites import NOTHING_SELECTED, PARTS, USAGE, Part, _chosen, _home, run_all

Run = Callable[..., tuple[int, set[str]]]
BOTH = {"first", "second"}
HAS_OPTIONS = (sys.executable, "-c", "import sys; sys.exit(len(sys.argv) - 1)")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".")


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Two suites with one test each, one in the other's folder, and between them a command that takes no options."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "first" / "second").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for name, folder in (("first", "first"), ("second", "first/second")):
        (tmp_path / folder / f"test_{name}.py").write_text(
            f"from pathlib import Path\n\ndef test_{name}():\n    Path('{name} ran').touch()\n"
        )
    second = "first/second"
    return [Part((*PYTEST, "--ignore", second), ("first",)), Part(HAS_OPTIONS), Part(PYTEST, (second,))]


@pytest.fixture
def run(suites: list[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs them, asked for in their root: the status, and whose test ran."""
    monkeypatch.setenv(INVOKED_FROM, str(tmp_path))

    def run(*arguments: str, parts: Sequence[Part] = suites) -> tuple[int, set[str]]:
        status = run_all(parts, arguments, tmp_path)
        return status, {path.name.removesuffix(" ran") for path in tmp_path.glob("* ran")}

    return run


@pytest.mark.parametrize(
    ("selection", "ran"), [("test_first", {"first"}), ("test_second", {"second"}), ("test_first or test_second", BOTH)]
)
def test_a_suite_that_a_selection_leaves_empty_is_no_failure(run: Run, selection: str, ran: set[str]) -> None:
    assert run("-k", selection) == (0, ran)


def test_a_selection_that_leaves_every_suite_empty_is_one(run: Run) -> None:
    assert run("-k", "a_name_with_a_slip") == (NOTHING_SELECTED, set())


def test_a_suite_without_tests_is_a_failure_when_nothing_was_selected(run: Run, tmp_path: Path) -> None:
    (tmp_path / "first/second/test_second.py").unlink()
    assert run() == (NOTHING_SELECTED, {"first"})


def test_the_first_failure_is_the_end_and_its_status_the_answer(run: Run, tmp_path: Path) -> None:
    (tmp_path / "first/test_first.py").write_text("def test_first():\n    assert False\n")
    assert run() == (1, set())


def test_a_failed_preparation_is_a_failure_whatever_was_selected(run: Run, suites: list[Part]) -> None:
    failed = Part((sys.executable, "-c", "import sys; sys.exit(20)"))
    assert run(parts=[suites[0], failed, suites[2]]) == (20, {"first"})


@pytest.mark.parametrize(
    ("paths", "ran"),
    [
        (["first/test_first.py"], {"first"}),
        (["first/second"], {"second"}),
        (["first/second/test_second.py::test_second", "-v"], {"second"}),
        (["-k", "first", "first/test_first.py"], {"first"}),
        (["first"], BOTH),
        (["."], BOTH),
        (["elsewhere/../first/second/"], {"second"}),
        (["--junitxml", "report.xml", "first/test_first.py"], {"first"}),
    ],
)
def test_a_path_goes_to_the_suites_that_have_its_tests(run: Run, paths: list[str], ran: set[str]) -> None:
    assert run(*paths) == (0, ran)


def test_nothing_is_prepared_for_suites_that_do_not_run(run: Run, suites: list[Part]) -> None:
    failed = Part((sys.executable, "-c", "import sys; sys.exit(20)"))
    assert run("first/test_first.py", parts=[suites[0], failed, suites[2]]) == (0, {"first"})


def test_a_path_is_the_callers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INVOKED_FROM, str(tmp_path / "first"))
    assert run("second") == (0, {"second"})


def test_a_path_without_tests_is_named(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("first/test_first.py", "elsewhere") == (USAGE, set())
    assert capfd.readouterr().err == "elsewhere: no suite has tests there; they have: first first/second\n"


def test_a_path_with_a_slip_is_named(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("first/test_frist.py", "first/second") == (USAGE, set())
    assert capfd.readouterr().err == f"{tmp_path}/first/test_frist.py: no such file or folder\n"


def test_every_file_of_tests_is_in_exactly_one_suite() -> None:
    folders = (PROJECT_ROOT / "smoke", PROJECT_ROOT / "tests")
    files = [str(path) for folder in folders for path in folder.rglob("test_*.py")]
    assert {file: sum(bool(_chosen(part, PARTS, [file], PROJECT_ROOT)) for part in PARTS) for file in files} == (
        dict.fromkeys(files, 1)
    )
    real_tools = [file for file in files if "/real_tools/" in file]
    assert real_tools
    assert {_home(file, PARTS, PROJECT_ROOT) for file in real_tools} == {PARTS[1]}
    assert {own for part in PARTS for own in part.paths if own in _ignored(PARTS[0])} == set(PARTS[1].paths)


def _ignored(part: Part) -> set[str]:
    return {value for option, value in pairwise(part.argv) if option == "--ignore"}


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
        f"sys.exit(run_all([Part(({sys.executable!r}, {str(suite)!r}), ('tests',))], []))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, env=os.environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "cleaned up\n"
    assert process.returncode == 7
