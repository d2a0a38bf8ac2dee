"""Fixtures of the fault suite: a run on a stage, its effect on bystanders, and the record of what was found.

`--write` puts the numbers into docs/reliability.md: of the whole suite, whatever came of it, and of nothing less.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from smoke.bystanders import Bystanders
from smoke.faults.page import write
from smoke.faults.record import Injection, Record, Subject
from smoke.faults.stage import Stage
from smoke.runner import processes_of, read_events

INJECTION = "injection"
FOLDER = Path(__file__).parent


class Collector:
    """Gathers what the tests report, also from other processes: `-n` runs them in several."""

    def __init__(self) -> None:
        self.record = Record()
        self.tests: set[str] = set()
        self.tested = Subject.here()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests.add(report.nodeid)
        if report.when == "teardown":
            found = [value for name, value in report.user_properties if name == INJECTION]
            self.record.injections += [Injection(**value) for value in found if isinstance(value, dict)]

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """A suite that was broken off, or a test that came to no fault, makes no page."""
        ended = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
        if ended and 0 < len(self.record.injections) == len(self.tests):
            changed = "" if self.tested == Subject.here() else ", changed meanwhile"
            write(self.record, replace(self.tested, revision=f"{self.tested.revision}{changed}"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the numbers to docs/reliability.md")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--write") or hasattr(config, "workerinput"):
        return
    option, paths = config.option, [Path(one).resolve() for one in config.args]
    if (paths, option.markexpr, option.keyword, option.maxfail or 0) != ([FOLDER], "faults", "", 0):
        raise pytest.UsageError(f"--write needs the whole suite: {FOLDER.name}, without -k, without -x")
    try:
        config.pluginmanager.register(Collector())
    except (OSError, subprocess.CalledProcessError) as failed:
        told = getattr(failed, "stderr", None) or failed
        raise pytest.UsageError(f"--write names the revision, which git does not tell: {told}") from None


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Iterator[Record]:
    """What this test provokes; it travels with the test's report."""
    made = Record()
    yield made
    request.node.user_properties.extend((INJECTION, asdict(one)) for one in made.injections)


@pytest.fixture(autouse=True)
def bystanders_are_left_alone(bystanders: Bystanders) -> Iterator[None]:
    """By every test."""
    yield
    bystanders.assert_untouched()


@pytest.fixture
def stage(tmp_path: Path, record: Record) -> Iterator[Callable[..., Stage]]:
    """Starts a run; what a failed test leaves of it is ended, and what even that leaves is counted."""
    made: list[Stage] = []

    def start(*options: str) -> Stage:
        made.append(Stage.of(tmp_path / "run", *options))
        return made[-1]

    yield start
    for one in made:
        one.end()
        left = processes_of(read_events(one.run.run_dir))
        if left and record.injections:
            record.injections[-1].survivors = max(record.injections[-1].survivors, len(left))
        assert not left, left
