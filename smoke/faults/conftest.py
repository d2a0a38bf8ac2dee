"""Fixtures of the fault suite: a run on a stage, its effect on bystanders, and the record of what was found.

`--write` puts the numbers into docs/reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smoke.bystanders import Bystanders
from smoke.faults.record import Record, write
from smoke.faults.stage import Stage

RECORD = pytest.StashKey[Record]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the numbers to docs/reliability.md")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RECORD] = Record()


def pytest_sessionfinish(session: pytest.Session) -> None:
    record = session.config.stash[RECORD]
    if session.config.getoption("--write") and record.injections:
        write(record)


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> Record:
    return request.config.stash[RECORD]


@pytest.fixture(autouse=True)
def bystanders_are_left_alone(bystanders: Bystanders) -> Iterator[None]:
    """By every test."""
    yield
    bystanders.assert_untouched()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Starts a run; what a failed test leaves of it is ended."""
    made: list[Stage] = []

    def start(*options: str) -> Stage:
        made.append(Stage.of(tmp_path / "run", *options))
        return made[-1]

    yield start
    for one in made:
        one.end()
