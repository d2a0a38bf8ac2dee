"""Whatever ends a run, its verdict is written, its exit status is the contract's, and its places are given back."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from pydantic import ValidationError

from harness import run, rundir
from harness.bringup import phase
from harness.config import RunConfig
from harness.credentials import Credentials
from harness.errors import (
    DiscoveryError,
    DoctorError,
    InstallError,
    Interrupted,
    NotReadyError,
    RefitError,
    SmokestackError,
)
from harness.eventlog import EventLog
from harness.events import GpuMemory, GpuUse, ServiceStarted
from harness.models import ModelChoice
from harness.program import Program
from harness.report import environment as machine
from harness.report.verdict import Outcome
from harness.request import Request
from harness.run import SmokeRun, smoke
from harness.session import Session, opened
from harness.stack import Stack
from harness.teardown import Leftovers
from tests.harness.event_factory import passing_run, run_config


def asked(tmp_path: Path, **changes: Any) -> Request:
    values: dict[str, Any] = {"stack": "cpu", "model": ModelChoice("tiny", "tiny"), "root": tmp_path, "quiet": True}
    return Request(**{**values, **changes})


def ends_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(_session: Session) -> NoReturn:
        raise error

    monkeypatch.setattr(run, "install", install)


def events_of(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "runs" / "latest" / "events.jsonl").read_text().splitlines()]


def verdict_of(tmp_path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((tmp_path / "runs" / "latest" / "verdict.json").read_text())
    return parsed


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InstallError("no space"), 20),
        (NotReadyError("engine-0 was not ready"), 30),
        (DiscoveryError("no worker"), 31),
        (RefitError("500"), 40),
        (Interrupted("the run was interrupted"), 130),
        (ZeroDivisionError("a fault of ours"), 70),
    ],
)
def test_every_end_has_its_status_and_a_verdict(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(error, monkeypatch)
    assert smoke(asked(tmp_path)) == status
    verdict = verdict_of(tmp_path)
    assert verdict["verdict"] == "error"
    assert verdict["failure"]["kind"] == (error.kind if isinstance(error, SmokestackError) else "internal")
    assert verdict["survivors"] == []
    written = {path.name for path in (tmp_path / "runs" / "latest").iterdir()}
    assert {"verdict.json", "junit.xml", "config.json", "events.jsonl", "environment.json"} <= written


def test_a_fault_of_ours_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(ZeroDivisionError("a fault of ours"), monkeypatch)
    smoke(asked(tmp_path))
    text = (tmp_path / "runs" / "latest" / "internal-error.txt").read_text()
    assert "Traceback" in text
    assert "ZeroDivisionError: a fault of ours" in text


def test_the_verdict_alone_goes_to_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with(InstallError("no space", hint="rm -r .cache"), monkeypatch)
    smoke(asked(tmp_path, json=True, quiet=False))
    captured = capsys.readouterr()
    assert json.loads(captured.out) == verdict_of(tmp_path)
    assert "no space" in captured.err
    assert "rm -r .cache" in captured.err


@pytest.mark.parametrize("own", [False, True], ids=["our-trainer", "own-trainer"])
def test_a_key_in_a_log_or_on_a_command_line_is_told_nowhere(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("started\nAuthorization: Bearer key-of-nobody\n")
    ends_with(NotReadyError("engine-0 was not ready", log=log), monkeypatch)
    trainer = Program(argv=("train.py", "--key=key-of-nobody"), cwd=tmp_path) if own else None
    smoke(asked(tmp_path, credentials=Credentials(api_key="key-of-nobody"), trainer=trainer, quiet=False))
    told = {path.name: path.read_text() for path in (tmp_path / "runs" / "latest").glob("*.*")}
    told["stderr"] = capsys.readouterr().err
    assert [name for name, text in told.items() if "key-of-nobody" in text] == []
    for name in ("stderr", "junit.xml"):
        assert "| Authorization: Bearer [concealed]" in told[name]
    assert ("--key=[concealed]" in told["config.json"]) is own
    assert trainer is None or trainer.argv[1] == "--key=key-of-nobody"


def full_from(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Files of these names cannot be written any more."""
    write: Callable[..., Path] = rundir.write_text

    def refuse(path: Path, text: str) -> Path:
        if path.name in names:
            raise DoctorError(f"{path} cannot be written: No space left on device")
        return write(path, text)

    monkeypatch.setattr(rundir, "write_text", refuse)


def full_for_events(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """The disk is full from the first event of one of these kinds on."""
    write = EventLog._append

    def refuse(log: EventLog, line: bytes) -> None:
        if json.loads(line)["kind"] in kinds:
            log.failed = DoctorError("events.jsonl cannot be written: No space left on device")
        else:
            write(log, line)

    monkeypatch.setattr(EventLog, "_append", refuse)


@pytest.mark.parametrize("kind", ["failure", "teardown", "phase"])
def test_a_disk_that_is_full_at_the_end_hides_neither_the_cause_nor_the_verdict(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with(InstallError("the lock does not resolve"), monkeypatch)
    full_for_events(monkeypatch, kind)
    assert smoke(asked(tmp_path, json=True)) == 20
    assert json.loads(capsys.readouterr().out) == verdict_of(tmp_path)
    assert verdict_of(tmp_path)["failure"]["what"] == "the lock does not resolve"


def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which every check passes, as far as the judge is told."""
    monkeypatch.setattr(run.SmokeRun, "_run", lambda _self: None)
    judge = run.judge_run
    sound = passing_run()
    asked_for = {"ports": run_config().ports, "grpo": run_config().grpo}

    def judge_sound(recorded: list[dict[str, Any]], config: RunConfig) -> Outcome:
        return judge(
            [*sound, *(event for event in recorded if event["kind"] == "failure")], config.model_copy(update=asked_for)
        )

    monkeypatch.setattr(run, "judge_run", judge_sound)


def test_a_run_whose_timeline_could_not_be_written_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes(monkeypatch)
    assert smoke(asked(tmp_path)) == 0
    full_for_events(monkeypatch, "teardown")
    assert smoke(asked(tmp_path)) == 10
    assert verdict_of(tmp_path)["failure"]["kind"] == "doctor"


def test_a_phase_ends_the_run_when_the_timeline_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_for_events(monkeypatch, "note")
    with opened(asked(tmp_path)) as session:
        session.note("lost")
        with pytest.raises(DoctorError, match="No space left"), phase(session, "install"):
            pass


def test_a_verdict_that_cannot_be_written_is_still_told_and_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes(monkeypatch)
    full_from(monkeypatch, "verdict.json")
    assert smoke(asked(tmp_path, json=True)) == 10
    captured = capsys.readouterr()
    assert json.loads(captured.out)["failure"]["kind"] == "doctor"
    assert "No space left on device" in captured.err


@pytest.mark.parametrize("name", ["junit.xml", "environment.json"])
def test_what_lies_beside_the_verdict_changes_nothing_and_is_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes(monkeypatch)
    full_from(monkeypatch, name)
    assert smoke(asked(tmp_path)) == 0
    assert verdict_of(tmp_path)["verdict"] == "pass"
    assert f"{name} could not be written" in capsys.readouterr().err


def test_a_machine_that_cannot_be_described_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(_root: Path) -> NoReturn:
        raise RuntimeError("nobody knows")

    passes(monkeypatch)
    monkeypatch.setattr(run.machine, "describe", no_answer)
    assert smoke(asked(tmp_path)) == 0
    assert verdict_of(tmp_path)["verdict"] == "pass"


def test_a_fault_of_the_judge_is_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> NoReturn:
        raise OverflowError("too large")

    monkeypatch.setattr(run.SmokeRun, "_run", lambda _self: None)
    monkeypatch.setattr(run, "judge_run", faulty)
    assert smoke(asked(tmp_path)) == 70
    assert verdict_of(tmp_path)["failure"]["what"] == "internal error: OverflowError: too large"


def test_a_fault_whose_traceback_cannot_be_written_carries_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_from(monkeypatch, "internal-error.txt")
    ends_with(ZeroDivisionError("a fault of ours"), monkeypatch)
    assert smoke(asked(tmp_path)) == 70
    (failure,) = (e for e in events_of(tmp_path) if e["kind"] == "failure")
    assert "Traceback" in failure["error"]["found"]


class Stubborn:
    """A stack whose stop fails as often as it is told to."""

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self.stops = 0

    def stop(self, **_: object) -> Leftovers:
        self.stops += 1
        if self.stops <= self.faults:
            raise OSError(5, "Input/output error")
        return Leftovers(survivors=(), ports=(), seconds=0.1)


@pytest.mark.parametrize(("faults", "known"), [(1, True), (9, False)])
def test_a_stop_that_fails_is_tried_again_and_never_taken_for_a_clean_one(
    faults: int, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stubborn(faults)

    def start(self: SmokeRun) -> None:
        self.stack = cast(Stack, stack)
        self.session.emit(ServiceStarted(service="etcd", pid=1, start_time=0.0, log="logs/etcd.log"))

    monkeypatch.setattr(SmokeRun, "_run", start)
    assert smoke(asked(tmp_path)) == 70
    assert stack.stops == 2
    assert [e["kind"] for e in events_of(tmp_path)].count("teardown") == int(known)
    (clean,) = (check for check in verdict_of(tmp_path)["checks"] if check["id"] == "teardown.clean")
    assert clean["status"] == ("pass" if known else "fail")


def test_a_scratch_folder_that_cannot_be_looked_at_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stubborn(0)

    def start(self: SmokeRun) -> None:
        self.stack = cast(Stack, stack)
        monkeypatch.setattr(type(self.session.scratch), "leftovers", broken)

    def broken(_self: object) -> NoReturn:
        monkeypatch.undo()
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(SmokeRun, "_run", start)
    assert smoke(asked(tmp_path)) == 70
    assert stack.stops == 1


def test_a_reader_that_leaves_ends_the_view_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(InstallError("no space"), monkeypatch)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        assert smoke(asked(tmp_path, quiet=False)) == 20
    assert verdict_of(tmp_path)["failure"]["kind"] == "install"


def test_the_request_decides_how_weights_travel_and_what_is_served_first(tmp_path: Path) -> None:
    with opened(asked(tmp_path)) as session:
        assert (session.config.refit, session.config.starts_untrained) == (None, True)
    with opened(asked(tmp_path, refit="collective-rpc")) as session:
        assert session.config.refit == "collective-rpc"
    folder = ModelChoice("folder", "mine", tmp_path)
    with opened(asked(tmp_path, model=folder)) as session:
        assert not session.config.starts_untrained
    with pytest.raises(ValidationError, match="refit"), opened(asked(tmp_path, refit="pigeon")):
        pytest.fail("it was opened")


def test_a_session_leaves_only_its_run_folder(tmp_path: Path) -> None:
    with opened(asked(tmp_path)) as session:
        scratch = session.scratch.path
        assert scratch.is_dir()
        assert len(set(session.config.ports.values())) == len(session.config.ports)
        config = json.loads((session.run_dir.path / "config.json").read_text())
    assert config["tmp_dir"] == str(scratch)
    assert not scratch.exists()


def test_two_sessions_never_share_a_port(tmp_path: Path) -> None:
    with opened(asked(tmp_path)) as one, opened(asked(tmp_path)) as other:
        assert set(one.config.ports.values()).isdisjoint(other.config.ports.values())
        assert one.config.run_id != other.config.run_id


def test_one_of_several_runs_tells_that_it_was_asked_to_end_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else hears of a signal that comes while a run writes what it found."""
    passes(monkeypatch)
    write = machine.describe

    def describe(root: Path) -> object:
        signal.raise_signal(signal.SIGINT)
        return write(root)

    monkeypatch.setattr(run.machine, "describe", describe)
    with pytest.raises(Interrupted, match="had come to its end"):
        run.run_once(asked(tmp_path))
    assert verdict_of(tmp_path)["verdict"] == "pass"


def test_the_gpus_are_looked_at_before_anything_starts_and_after_everything_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use_gpus(session: Session) -> object:
        session.use(platform="cuda", gpus=("4", "5"))
        return object()

    def start_something(session: Session, _manifest: object, **_: object) -> NoReturn:
        session.emit(ServiceStarted(service="engine-0", pid=1, start_time=1.0, log="x"))
        raise NotReadyError("engine-0 was not ready")

    class Watch:
        def __init__(self, session: Session) -> None:
            assert session.config.gpus == ("4", "5")

        of = classmethod(lambda cls, session: cls(session))

        def before(self) -> GpuMemory:
            return GpuMemory(when="start", gpus=tuple(GpuUse(name=n, used_mib=4, processes=()) for n in ("4", "5")))

        def after(self, before: GpuMemory) -> GpuMemory:
            return before.model_copy(update={"when": "end"})

    monkeypatch.setattr(run, "install", use_gpus)
    monkeypatch.setattr(run, "make_model", start_something)
    monkeypatch.setattr(run, "GpuWatch", Watch)
    assert smoke(asked(tmp_path)) == 30
    kinds = [(event["kind"], event.get("when")) for event in events_of(tmp_path)]
    places = [kinds.index(one) for one in (("gpu.memory", "start"), ("service.started", None), ("teardown", None))]
    assert places == sorted(places)
    assert kinds.index(("gpu.memory", "end")) > kinds.index(("teardown", None))
    checks = {check["id"]: check for check in verdict_of(tmp_path)["checks"]}
    assert checks["teardown.gpu-memory"]["status"] == "pass"
