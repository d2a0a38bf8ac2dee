"""What the fault suite demands of a provoked fault's end can fail: one thing wrong with it, and it is no detection."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from smoke.bystanders import Bystanders
from smoke.faults.outcome import complete, ended, no_shared_memory_of, topology_of
from smoke.faults.record import Injection
from smoke.faults.stage import Stage
from smoke.runner import Command, Outcome
from tests.harness.event_factory import admin_url, passing_run
from tests.harness.waiting import until

JUNIT = """<testsuites><testsuite><testcase name="run"><error message="{what}" type="{kind}"/></testcase>
<testcase name="teardown.clean"/></testsuite></testsuites>"""


@dataclass
class Ended:
    """A run that ended as it must, in a folder; its tests change one thing. It stands in for `Command`."""

    run_dir: Path
    returncode: int = 40
    failure: dict[str, Any] = field(
        default_factory=lambda: {"kind": "service-died", "what": "engine-0 ended", "log": "logs/engine-0.log"}
    )
    cause: dict[str, Any] = field(default_factory=lambda: {"what": "engine-0 ended", "expected": "pid 7 runs"})
    verdict: dict[str, Any] = field(default_factory=lambda: {"verdict": "error", "survivors": []})
    teardown: dict[str, Any] = field(default_factory=lambda: {"survivors": [], "ports": [], "files": []})
    ports: dict[str, int] = field(default_factory=dict)
    junit: str = JUNIT
    told: bool = True

    def write(self) -> None:
        (self.run_dir / "logs").mkdir(parents=True)
        self.json("verdict.json", {**self.verdict, "failure": self.failure, "checks": [{"id": "teardown.clean"}]})
        self.json("config.json", {"tmp_dir": str(self.run_dir / "gone"), "ports": self.ports})
        self.json("environment.json", {"machine": "some"})
        (self.run_dir / "logs" / "engine-0.log").write_text("Killed\n")
        (self.run_dir / "junit.xml").write_text(self.junit.format(**self.failure))
        events = [
            {"kind": "run.started", "config": {"run_id": self.mark}},
            *([{"kind": "failure", "error": self.cause}] if self.told else []),
            {"kind": "teardown", **self.teardown},
        ]
        (self.run_dir / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))

    def json(self, name: str, document: object) -> None:
        (self.run_dir / name).write_text(json.dumps(document))

    @property
    def mark(self) -> str:
        return f"run-of-{os.getpid()}"

    def wait(self, seconds: float) -> Outcome:
        return Outcome(self.returncode, "", "", self.run_dir, seconds)

    def judge(self, *, within: float = 0.2, seconds: float | None = None) -> Injection:
        """As a test of the suite does."""
        injection = Injection("F09", "one")
        stage = Stage(cast(Command, self))
        ended(
            stage,
            injection,
            within=within,
            status=40,
            kinds={"service-died"},
            says=r"engine-0 ended.*pid 7\b",
            seconds=seconds,
        )
        return injection


@pytest.fixture
def run(tmp_path: Path) -> Ended:
    return Ended(tmp_path / "run")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_right_end_is_a_detection(run: Ended) -> None:
    run.write()
    injection = run.judge(seconds=0.1)
    assert injection == Injection("F09", "one", 0.1, "exit 40, service-died")
    assert injection.right


WRONG: dict[str, Callable[[Ended], None]] = {
    "another status": lambda run: setattr(run, "returncode", 30),
    "a pass": lambda run: run.verdict.update(verdict="pass"),
    "another kind": lambda run: run.failure.update(kind="training"),
    "another process named": lambda run: run.cause.update(expected="pid 8 runs"),
    "no word of the cause": lambda run: run.cause.update(what="rollouts failed"),
    "nothing said at all": lambda run: setattr(run, "told", False),
    "a survivor in the verdict": lambda run: run.verdict.update(survivors=[{"pid": 7}]),
    "a survivor in the teardown": lambda run: run.teardown.update(survivors=[{"pid": 7}]),
    "a port left": lambda run: run.teardown.update(ports=[1]),
    "a file left": lambda run: run.teardown.update(files=["/dev/shm/x"]),
    "a log that is not there": lambda run: run.failure.update(log="logs/none.log"),
    "nothing for CI": lambda run: setattr(run, "junit", "<testsuites/>"),
    "another failure for CI": lambda run: setattr(run, "junit", JUNIT.replace("{kind}", "refit")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_thing_wrong_is_no_detection(run: Ended, wrong: str) -> None:
    WRONG[wrong](run)
    run.write()
    with pytest.raises((AssertionError, FileNotFoundError)):
        run.judge(seconds=0.1)


@pytest.mark.parametrize("name", ["verdict.json", "environment.json", "junit.xml", "events.jsonl"])
def test_evidence_that_is_missing_is_no_detection(run: Ended, name: str) -> None:
    run.write()
    (run.run_dir / name).unlink()
    with pytest.raises((AssertionError, FileNotFoundError)):
        run.judge(seconds=0.1)


def test_what_is_noticed_late_is_no_detection(run: Ended) -> None:
    run.write()
    with pytest.raises(AssertionError, match=r"noticed after 0\.3 s"):
        run.judge(seconds=0.3)


def test_a_living_process_of_the_run_is_counted_and_no_detection(run: Ended, closing: ExitStack) -> None:
    run.write()
    command = [sys.executable, "-c", "input()"]
    environment = {**os.environ, "SMOKESTACK_RUN_ID": run.mark}
    alive = closing.enter_context(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE))
    closing.callback(alive.kill)
    stage, injection = Stage(cast(Command, run)), Injection("F09", "one")
    with pytest.raises(AssertionError):
        ended(stage, injection, within=1, status=40, kinds={"service-died"}, says="engine-0", seconds=0.1)
    assert injection.survivors == 1
    assert not injection.right


def test_a_port_that_is_still_served_is_no_detection(run: Ended, closing: ExitStack) -> None:
    server = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
    run.ports["engine-0"] = server.getsockname()[1]
    run.write()
    with pytest.raises(AssertionError):
        run.judge(seconds=0.1)


@pytest.mark.parametrize("name", ["gone", "stack.json"])
def test_a_file_of_the_run_that_is_left_is_no_clean_end(run: Ended, name: str) -> None:
    run.write()
    (run.run_dir / name).touch()
    with pytest.raises(AssertionError):
        complete(run.wait(0))


def test_shared_memory_that_is_left_is_named(tmp_path: Path) -> None:
    (tmp_path / "segment").touch()
    no_shared_memory_of({tmp_path / "gone"})
    with pytest.raises(AssertionError, match="segment"):
        no_shared_memory_of({tmp_path / "gone", tmp_path / "segment"})


def test_each_line_of_the_timeline_is_read_once_and_only_when_it_is_whole(run: Ended) -> None:
    run.run_dir.mkdir()
    stage, path = Stage(cast(Command, run)), run.run_dir / "events.jsonl"
    assert stage.events() == []
    path.write_text('{"kind": "a", "version": 1}\n{"ki')
    assert stage.seen("a", version=1) == [{"kind": "a", "version": 1}]
    with path.open("a") as sink:
        sink.write('nd": "b"}\n')
    assert [event["kind"] for event in stage.events()] == ["a", "b"]
    assert stage.seen("a", version=2) == []


@pytest.mark.parametrize(("number", "word"), [(signal.SIGSTOP, "was stopped"), (signal.SIGKILL, "was ended")])
def test_bystanders_that_were_touched_are_missed(number: signal.Signals, word: str) -> None:
    bystanders = Bystanders.start()
    try:
        bystanders.assert_untouched()
        touched = bystanders.processes[0]
        touched.send_signal(number)
        until("its state", lambda: psutil.Process(touched.pid).status() in {"stopped", "zombie"})
        with pytest.raises(AssertionError, match=word):
            bystanders.assert_untouched()
        touched.send_signal(signal.SIGCONT)
    finally:
        bystanders.end()


def test_a_recorded_topology_is_the_one_that_a_run_pinned() -> None:
    [told] = [event for event in passing_run() if event["kind"] == "topology"]
    [worker] = topology_of(told).workers
    assert (worker.admin_url, worker.world_size, worker.rank_offset) == (admin_url(0), 1, 0)
