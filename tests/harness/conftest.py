"""What several test modules of the run plane start and end again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import startup, vigil
from harness.process import Process
from harness.proctable import ProcessId, read_row
from tests.harness.bench import Bench
from tests.harness.scripted import RESTING_CHILD, RUN, Start, service


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a Python script as a service; whatever the test does, everything of it is ended afterwards."""
    started: list[Process] = []

    def begin(script: str) -> Process:
        spec = service(tmp_path, script, name=f"service-{len(started)}")
        process = Process(spec, run_id=f"{RUN}-{tmp_path.name}")
        started.append(process)
        process.start()
        return process

    yield begin
    for process in started:
        assert process.kill().left == ()


@pytest.fixture
def bystander() -> Iterator[ProcessId]:
    """Somebody else's program that looks like the stack's in name and arguments."""
    argv = ["VLLM::EngineCore", "-c", RESTING_CHILD, "vllm serve", "dynamo.frontend", "--engine"]
    with subprocess.Popen(argv, executable=sys.executable, start_new_session=True) as popen:
        row = read_row(popen.pid)
        assert row is not None
        yield row.id
        alive = popen.poll() is None
        popen.kill()
    assert alive, "the bystander was ended"


@pytest.fixture
def quick_aftermath(monkeypatch: pytest.MonkeyPatch) -> None:
    """For calls to a server that is no process of a run: nobody's end explains a failure, and none is waited for."""
    monkeypatch.setattr(vigil, "AFTERMATH_S", 0.01)


@pytest.fixture
def make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """The fakes are ready much sooner than the programs that they stand for, and are asked more often."""
    monkeypatch.setattr(startup, "READY_INTERVAL_S", 0.02)
    monkeypatch.setattr(startup, "SNAPSHOT_INTERVAL_S", 0.02)
    made: list[Bench] = []

    def make(**options: object) -> Bench:
        made.append(Bench(tmp_path, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
