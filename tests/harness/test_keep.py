"""`up` leaves a stack that later commands find, or nothing; a stack whose harness was killed is found as well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import keep, run, takedown
from harness.bringup import new_stack
from harness.cli import build_parser
from harness.clock import Deadline
from harness.config import Deadlines
from harness.credentials import Credentials
from harness.errors import DoctorError, TeardownError
from harness.events import RunFailure, Survivor
from harness.inuse import in_use_file
from harness.manifest import Manifest
from harness.models import ModelChoice
from harness.process import Process
from harness.request import Request
from harness.run import SmokeRun, smoke
from harness.services import exposed
from harness.session import Session
from harness.stack import Stack
from harness.standing import STATE_FILE, StandingStack
from harness.teardown import Leftovers
from scripts.exclusion import holders
from tests.harness import fakes
from tests.harness.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ["etcd", "engine-0", "frontend", "sidecar-0"]


def installed(session: Session) -> Manifest:
    """Instead of an install: the environment of fakes, in use from now on."""
    session.in_use.take(Deadline.after(session.clock, 10), session.clock, session.note)
    return Manifest.model_validate(fakes.manifest_fields())


def modelled(session: Session, _manifest: Manifest, *, warm: bool = False) -> None:
    session.use(model_dir=session.config.project_root / "model", platform="cpu")


def generated(_session: Session, _observer: object) -> None:
    """Instead of a first generation, which the fake frontend does not give."""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Request]:
    """A request for a stack of fakes; what it left running is ended afterwards."""
    fakes.make_environment(tmp_path / ".venv-cpu")
    monkeypatch.setattr(keep, "install", installed)
    monkeypatch.setattr(keep, "make_model", modelled)
    monkeypatch.setattr(keep, "first_generation", generated)
    monkeypatch.setattr(takedown, "PROJECT_ROOT", tmp_path)
    launched: list[Process] = []
    start = Process.start

    def remembered(process: Process) -> None:
        start(process)
        launched.append(process)

    monkeypatch.setattr(Process, "start", remembered)
    yield Request(
        stack="cpu",
        model=ModelChoice("tiny", "tiny"),
        root=tmp_path,
        quiet=True,
        deadlines=Deadlines(discovery_s=20, stop_grace_s=5),
    )
    for state in tmp_path.glob(f"**/{STATE_FILE}"):
        if not state.parent.is_symlink():
            takedown.take_down(StandingStack.load(state.parent), urgent=lambda: True)
    for process in launched:
        # They are children of this process, which would have ended before them.
        process.kill()


def command(*argv: str) -> int:
    args = build_parser().parse_args(argv)
    status: int = args.command(args)
    return status


def latest(root: Path) -> Path:
    return (root / "runs" / "latest").resolve()


def failure_of(run_dir: Path) -> RunFailure:
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    (failure,) = [event["error"] for event in events if event["kind"] == "failure"]
    return RunFailure(**failure)


def scratch_of(run_dir: Path) -> Path:
    return Path(json.loads((run_dir / "config.json").read_text())["tmp_dir"])


class TestUp:
    def test_the_stack_is_left_standing_and_taken_down_later(
        self, asked: Request, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert keep.up(asked) == 0
        assert "take it down with: ./noxw -s down\n" in capsys.readouterr().out
        standing = StandingStack.load(latest(asked.root))
        assert (standing.situation, standing.alive()) == ("standing", dict.fromkeys(SERVICES, True))
        assert command("down") == 0
        assert not any(standing.alive().values())
        assert not standing.tmp_dir.exists()
        assert not (standing.run_dir / STATE_FILE).exists()

    def test_its_environment_is_in_use_until_it_is_down(self, asked: Request) -> None:
        keep.up(asked)
        lock = in_use_file(asked.root, "cpu")
        pids = {service.pid for service in StandingStack.load(latest(asked.root)).services}
        assert {int(line.split()[1].rstrip(":")) for line in holders(lock)} >= pids
        command("down")
        assert holders(lock) == []

    def test_it_is_written_down_from_the_first_service_on(
        self, asked: Request, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[str, list[str]]] = []
        launch = Stack.launch

        def looked_at(stack: Stack, spec: Any) -> Any:
            process = launch(stack, spec)
            state = StandingStack.load(stack.context.config.run_dir)
            seen.append((state.situation, [service.service for service in state.services]))
            return process

        monkeypatch.setattr(Stack, "launch", looked_at)
        keep.up(asked)
        assert seen == [("running", SERVICES[: count + 1]) for count in range(len(SERVICES))]

    def test_outside_of_runs_it_is_taken_down_by_its_folder(
        self, asked: Request, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run_dir = tmp_path / "some where"
        keep.up(Request(**{**vars(asked), "run_dir": run_dir}))
        assert f"./noxw -s down -- --run-dir '{run_dir}'" in capsys.readouterr().out
        assert command("down", "--run-dir", str(run_dir)) == 0


class TestFailedUp:
    def fails(self, asked: Request, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
        """The exit status and what was said; nothing may be left."""
        status = keep.up(asked)
        run_dir = latest(asked.root)
        assert not (run_dir / STATE_FILE).exists()
        assert not scratch_of(run_dir).exists()
        assert holders(in_use_file(asked.root, "cpu")) == []
        captured = capsys.readouterr()
        assert captured.out == ""
        return status, captured.err

    def test_it_says_what_failed_with_the_log_and_what_to_do(
        self, asked: Request, capsys: pytest.CaptureFixture[str]
    ) -> None:
        engine = asked.root / ".venv-cpu" / "bin" / "vllm-rs"
        engine.write_text("#!/bin/sh\necho the model is too large\nexit 3\n")
        status, said = self.fails(asked, capsys)
        assert status == 30
        assert "ERROR service-died: engine-0 ended" in said
        assert "    | the model is too large" in said
        assert "logs/engine-0.log" in said
        assert "  fix " in said

    def test_a_key_that_is_in_the_log_is_not_said(self, asked: Request, capsys: pytest.CaptureFixture[str]) -> None:
        engine = asked.root / ".venv-cpu" / "bin" / "vllm-rs"
        engine.write_text("#!/bin/sh\necho not accepted: key-of-nobody\nexit 3\n")
        _, said = self.fails(replace(asked, credentials=Credentials(api_key="key-of-nobody")), capsys)
        assert "    | not accepted: [concealed]" in said
        assert "key-of-nobody" not in said

    def test_an_interrupt_at_the_very_end_still_counts(
        self, asked: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(session: Session, _observer: object) -> None:
            session.signals.interrupt.set()

        monkeypatch.setattr(keep, "first_generation", interrupted)
        assert self.fails(asked, capsys)[0] == 130

    def test_a_stack_that_cannot_be_written_down_is_not_left(
        self, asked: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write = StandingStack.write

        def full(standing: StandingStack) -> Path:
            if standing.owner is None:
                raise DoctorError("stack.json cannot be written: No space left on device")
            return write(standing)

        monkeypatch.setattr(StandingStack, "write", full)
        assert self.fails(asked, capsys)[0] == 10

    def test_json_has_one_document_then_too(
        self, asked: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(keep, "first_generation", lambda session, _observer: session.signals.interrupt.set())
        assert keep.up(Request(**{**vars(asked), "json": True})) == 130
        assert json.loads(capsys.readouterr().out)["failure"]["kind"] == "interrupted"

    def test_a_fault_of_ours_is_recorded_and_leaves_nothing(
        self, asked: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def faulty(_session: Session, _observer: object) -> None:
            raise ZeroDivisionError("a fault of ours")

        monkeypatch.setattr(keep, "first_generation", faulty)
        status, said = self.fails(asked, capsys)
        failure = failure_of(latest(asked.root))
        assert (failure.kind, failure.exit_code) == ("internal", status)
        assert "ZeroDivisionError: a fault of ours" in said

    def test_what_it_leaves_is_named_and_has_a_status_of_its_own(
        self, asked: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stop = Stack.stop

        def leaving(stack: Stack, **options: Any) -> Leftovers:
            stop(stack, **options)
            return Leftovers(survivors=(Survivor(pid=4711, service="engine-0", cmd="stuck"),), ports=(), seconds=0.0)

        monkeypatch.setattr(Stack, "stop", leaving)
        monkeypatch.setattr(keep, "first_generation", lambda session, _observer: session.signals.interrupt.set())
        assert keep.up(asked) == TeardownError.exit_code
        said = capsys.readouterr().err
        assert "interrupted" in said
        assert "4711 (engine-0)" in said
        assert (latest(asked.root) / STATE_FILE).exists(), "`down` must find what was left"


class TestKilledHarness:
    @pytest.fixture
    def orphan(self, asked: Request) -> StandingStack:
        """The stack of a harness that was killed while it waited for a first generation."""
        driver = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from harness import keep
from harness.models import ModelChoice
from harness.request import Request
from tests.harness import test_keep
keep.install, keep.make_model = test_keep.installed, test_keep.modelled
def wait(session, observer):
    print("up", flush=True)
    session.clock.sleep(600)
keep.first_generation = wait
keep.up(Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=Path({str(asked.root)!r}), quiet=True))
"""
        with subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True) as harness:
            assert harness.stdout is not None
            assert harness.stdout.readline() == "up\n"
            standing = StandingStack.load(latest(asked.root))
            assert standing.situation == "running"
            assert standing.owner is not None
            assert standing.owner.pid == harness.pid
            os.kill(harness.pid, signal.SIGKILL)
        return standing

    def test_status_shows_its_stack(self, orphan: StandingStack, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("status") == 0
        said = capsys.readouterr().out
        assert "has ended without taking it down; do so with: ./noxw -s down" in said
        assert said.count(" runs, log ") == len(SERVICES)

    def test_down_takes_it_down(self, orphan: StandingStack) -> None:
        assert any(orphan.alive().values())
        assert command("down") == 0
        assert not any(orphan.alive().values())
        assert not orphan.tmp_dir.exists()

    def test_its_environment_stays_in_use(self, orphan: StandingStack, asked: Request) -> None:
        assert holders(in_use_file(asked.root, "cpu")) != []


class TestSmokeKeepUp:
    @pytest.fixture
    def kept(self, asked: Request, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Session], None]], int]:
        """Run `smoke --keep-up` with a run that only brings the stack up and then does what it is given."""

        def smoke_with(then: Callable[[Session], None]) -> int:
            def up_only(self: SmokeRun) -> None:
                manifest = installed(self.session)
                modelled(self.session, manifest)
                self.stack = new_stack(self.session, manifest)
                self.stack.start()
                then(self.session)

            monkeypatch.setattr(SmokeRun, "_run", up_only)
            return smoke(Request(**{**vars(asked), "keep_up": True}))

        return smoke_with

    def test_it_says_where_the_stack_is_and_what_ends_it(
        self, kept: Callable[[Callable[[Session], None]], int], asked: Request, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kept(lambda _session: None)
        standing = StandingStack.load(latest(asked.root))
        assert standing.situation == "standing"
        said = capsys.readouterr().err
        assert standing.urls["frontend"] in said
        assert "take it down with: ./noxw -s down" in said
        assert command("down") == 0

    def test_an_interrupt_at_the_very_end_takes_it_down(
        self, kept: Callable[[Callable[[Session], None]], int], asked: Request
    ) -> None:
        assert kept(lambda session: session.signals.interrupt.set()) == 130
        assert not (latest(asked.root) / STATE_FILE).exists()
        assert not scratch_of(latest(asked.root)).exists()

    def test_a_failed_run_is_not_kept(self, kept: Callable[[Callable[[Session], None]], int], asked: Request) -> None:
        def fail(_session: Session) -> None:
            raise DoctorError("no room")

        assert kept(fail) == 10
        assert not (latest(asked.root) / STATE_FILE).exists()


def test_a_stack_that_others_could_reach_is_not_left_standing(
    asked: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def expose(_session: Session, stack: Stack) -> None:
        stack.launch(exposed.spec(stack.context))
        log = stack.context.log("exposed")
        until("it listens", lambda: b"listening" in log.read_bytes())

    monkeypatch.setattr(keep, "observer_of", expose)
    assert keep.up(asked) == 30
    told = capsys.readouterr().err
    assert "listens where other machines can reach it" in told
    assert "listens on 0.0.0.0:" in told
    assert list(asked.root.glob(f"**/{STATE_FILE}")) == []


def test_a_smoke_run_takes_its_state_file_with_it(asked: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def up_only(self: SmokeRun) -> None:
        manifest = installed(self.session)
        modelled(self.session, manifest)
        self.stack = new_stack(self.session, manifest)
        self.stack.start()
        written.append(StandingStack.load(self.session.run_dir.path).situation)

    monkeypatch.setattr(run.SmokeRun, "_run", up_only)
    smoke(asked)
    assert written == ["running"]
    assert not (latest(asked.root) / STATE_FILE).exists()
