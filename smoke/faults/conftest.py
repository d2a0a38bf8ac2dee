"""Fixtures of the fault suite: a run on a stage, bystanders, and the record of what was found.

`--write` puts the numbers into docs/reliability.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from smoke.faults.record import Record, write
from smoke.faults.stage import Stage

RECORD = pytest.StashKey[Record]()
BYSTANDERS = ("vllm-rs serve tiny", "VLLM::EngineCore", "python -m dynamo.frontend", "etcd --data-dir")


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


@pytest.fixture(scope="session")
def bystander_processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes called like the stack's, in sessions of their own and in this one."""
    code = "import sys; sys.stdin.read()"
    started = [
        subprocess.Popen(
            [name, "-c", code, *name.split()],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            start_new_session=bool(index % 2),
        )
        for index, name in enumerate(BYSTANDERS)
    ]
    yield started
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


@pytest.fixture(autouse=True)
def bystanders(bystander_processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """The machine's other processes are untouched by every test: alive, and not stopped."""
    yield
    for process in bystander_processes:
        assert process.poll() is None, f"{process.args!r} was ended"
        assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED


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
