"""`status` and `down` deal with every stack by its own state; nothing that a state file says is believed blindly."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from harness import standing as module
from harness import takedown
from harness.cli import build_parser, main
from harness.errors import UsageError
from harness.proctable import ProcessId, read_boot_id, read_row
from harness.scratch import Scratch, make_scratch
from harness.standing import STATE_FILE, Owner, StandingService, StandingStack, Survey
from harness.survivors import RUN_MARK, SERVICE_MARK
from harness.teardown import StopError


class Up:
    """Stacks of one service each, `sleep`, in a project of the test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scratches: list[Scratch] = []

    def stack(self, name: str, inherited: BinaryIO | None = None, **changes: Any) -> StandingStack:
        run_dir = self.root / "runs" / name
        run_dir.mkdir(parents=True)
        run_id = f"{name}-{uuid.uuid4().hex}"
        process = subprocess.Popen(
            ["sleep", "600"],
            start_new_session=True,
            env={**os.environ, RUN_MARK: run_id, SERVICE_MARK: "etcd"},
            pass_fds=() if inherited is None else (inherited.fileno(),),
        )
        self.processes.append(process)
        scratch = make_scratch({"TMPDIR": "/tmp"})
        scratch.mark(run_id)
        self.scratches.append(scratch)
        service = StandingService(
            service="etcd",
            pid=process.pid,
            start_time=process_id(process.pid).start_time,
            session=process.pid,
            run_id=run_id,
            members=(),
            log=run_dir / "logs" / "etcd.log",
            ports={},
            stop_grace_s=5,
        )
        values: dict[str, Any] = {
            "run_id": run_id,
            "boot_id": read_boot_id(),
            "owner": None,
            "stack": "cpu",
            "model": "tiny",
            "run_dir": run_dir,
            "tmp_dir": scratch.path,
            "urls": {"frontend": "http://127.0.0.1:1"},
            "services": (service,),
        }
        standing = StandingStack(**{**values, **changes})
        standing.write()
        return standing

    def damaged(self, name: str) -> Path:
        path = self.root / "runs" / name / STATE_FILE
        path.parent.mkdir(parents=True)
        path.write_text('{"schema": 1}')
        return path

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for scratch in self.scratches:
            scratch.remove()


def process_id(pid: int) -> ProcessId:
    row = read_row(pid)
    assert row is not None
    return row.id


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    monkeypatch.setattr(takedown, "PROJECT_ROOT", tmp_path)
    made = Up(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ended() -> Owner:
    """A process that has ended."""
    with subprocess.Popen(["sleep", "600"]) as process:
        owner = Owner(pid=process.pid, start_time=process_id(process.pid).start_time)
        process.kill()
    return owner


def lives(standing: StandingStack) -> bool:
    return standing.alive() == {"etcd": True}


def command(*argv: str) -> int:
    args = build_parser().parse_args(argv)
    status: int = args.command(args)
    return status


class TestSituation:
    def test_a_stack_without_an_owner_was_left_standing(self, up: Up) -> None:
        assert up.stack("one").situation == "standing"

    def test_its_owner_is_known_by_pid_and_start_time(self, up: Up, ended: Owner) -> None:
        here = Owner.this_process()
        assert up.stack("one", owner=here).situation == "running"
        assert up.stack("two", owner=ended).situation == "orphaned"
        another = Owner(pid=here.pid, start_time=here.start_time + 1)
        assert up.stack("three", owner=another).situation == "orphaned"

    def test_of_an_earlier_boot_nothing_lives_whatever_has_its_pids_now(self, up: Up) -> None:
        standing = up.stack("one", boot_id="another")
        assert standing.situation == "rebooted"
        assert standing.alive() == {"etcd": False}

    def test_it_is_read_back_as_it_was_written(self, up: Up, ended: Owner) -> None:
        standing = up.stack("one", owner=ended)
        assert StandingStack.load(standing.run_dir) == standing


class TestSurvey:
    def test_an_unreadable_state_file_hides_no_other_stack(self, up: Up) -> None:
        path, one = up.damaged("bad"), up.stack("good")
        survey = Survey.of(up.root / "runs")
        assert survey.stacks == (one,)
        assert [error.where for error in survey.unreadable] == [str(path)]

    def test_a_stack_that_another_command_takes_down_meanwhile_is_not_up(
        self, up: Up, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        standing = up.stack("one")
        load = StandingStack.load.__func__  # type: ignore[attr-defined]

        def late(cls: type[StandingStack], run_dir: Path) -> StandingStack:
            module.forget(run_dir)
            loaded: StandingStack = load(cls, run_dir)
            return loaded

        monkeypatch.setattr(StandingStack, "load", classmethod(late))
        assert Survey.of(standing.run_dir.parent) == Survey((), ())

    def test_the_link_to_the_newest_run_is_not_a_second_stack(self, up: Up) -> None:
        one = up.stack("one")
        (up.root / "runs" / "latest").symlink_to("one")
        assert Survey.of(up.root / "runs").stacks == (one,)


class TestStatus:
    def test_it_shows_every_stack_and_what_it_cannot_read(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        path = up.damaged("bad")
        up.stack("one")
        up.stack("two")
        assert command("status") == UsageError.exit_code
        captured = capsys.readouterr()
        assert captured.out.count("take it down with: ./noxw -s down\n") == 2
        assert str(path) in captured.err

    def test_a_run_at_work_is_shown_as_such(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        up.stack("one", owner=Owner.this_process())
        assert command("status") == 0
        said = capsys.readouterr().out
        assert f"it belongs to a run that is at work and ends with it: pid {os.getpid()}, " in said
        assert "take it down" not in said

    def test_json_says_the_situation(self, up: Up, ended: Owner, capsys: pytest.CaptureFixture[str]) -> None:
        up.stack("one", owner=ended)
        command("status", "--json")
        (document,) = json.loads(capsys.readouterr().out)
        assert (document["situation"], document["alive"]) == ("orphaned", {"etcd": True})

    def test_without_any_it_says_so(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("status") == 0
        assert capsys.readouterr().err == "smokestack: no stack is up\n"


class TestDown:
    def test_it_ends_the_processes_and_removes_scratch_and_state(self, up: Up) -> None:
        standing = up.stack("one")
        assert command("down") == 0
        assert not lives(standing)
        assert not standing.tmp_dir.exists()
        assert not (standing.run_dir / STATE_FILE).exists()

    def test_it_adopts_the_stack_of_a_harness_that_has_ended(self, up: Up, ended: Owner) -> None:
        standing = up.stack("one", owner=ended)
        assert command("down") == 0
        assert not lives(standing)

    @pytest.mark.parametrize("options", [[], ["--all-runs"], ["--run-dir", "{run_dir}"]])
    def test_it_refuses_the_stack_of_a_run_at_work_and_names_it(
        self, up: Up, options: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        standing = up.stack("one", owner=Owner.this_process())
        argv = [option.format(run_dir=standing.run_dir) for option in options]
        assert command("down", *argv) == UsageError.exit_code
        said = capsys.readouterr().err
        assert f"belongs to a run that is at work (pid {os.getpid()})" in said
        assert f"kill -INT {os.getpid()}" in said
        assert lives(standing)
        assert standing.tmp_dir.exists()

    def test_beside_a_run_at_work_it_takes_the_other_one_down(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        running, left = up.stack("one", owner=Owner.this_process()), up.stack("two")
        assert command("down") == 0
        assert (lives(running), lives(left)) == (True, False)
        assert f"left alone: the stack of {running.run_dir}" in capsys.readouterr().err

    def test_of_several_one_must_be_named(self, up: Up) -> None:
        stacks = [up.stack("one"), up.stack("two")]
        with pytest.raises(UsageError, match="2 stacks are up"):
            command("down")
        assert all(lives(one) for one in stacks)
        assert command("down", "--run-dir", str(stacks[0].run_dir)) == 0
        assert [lives(one) for one in stacks] == [False, True]

    def test_an_unreadable_one_keeps_no_other_up(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        path, standing = up.damaged("bad"), up.stack("good")
        assert command("down") == UsageError.exit_code
        assert not lives(standing)
        assert str(path) in capsys.readouterr().err

    def test_one_that_cannot_be_stopped_keeps_no_other_up(
        self, up: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stuck, good = up.stack("a"), up.stack("b")
        take_down = StandingStack.take_down

        def failing(standing: StandingStack, **options: Any) -> Any:
            if standing.run_dir.name == "a":
                raise StopError([("etcd", PermissionError("not yours"))], [])
            return take_down(standing, **options)

        monkeypatch.setattr(StandingStack, "take_down", failing)
        assert command("down", "--all-runs", "--json") == 50
        captured = capsys.readouterr()
        assert [one["run_dir"] for one in json.loads(captured.out)] == [str(good.run_dir)]
        assert "not yours" in captured.err
        assert (lives(stuck), lives(good)) == (True, False)
        assert (stuck.run_dir / STATE_FILE).exists()

    def test_shared_memory_that_its_processes_hold_goes_with_them(self, up: Up) -> None:
        path = Path("/dev/shm") / f"smokestack-test-{uuid.uuid4().hex}"
        with path.open("wb") as segment:
            standing = up.stack("one", inherited=segment)
        try:
            assert command("down") == 0
            assert not lives(standing)
            assert not path.exists()
        finally:
            path.unlink(missing_ok=True)

    @pytest.mark.parametrize("owner", ["nobody", "another run", "a folder of another name"])
    def test_a_folder_that_is_not_the_runs_scratch_folder_is_not_removed(
        self, up: Up, tmp_path: Path, owner: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / ("precious" if owner == "a folder of another name" else "smokestack-precious")
        folder.mkdir()
        standing = up.stack("one", tmp_dir=folder)
        if owner != "nobody":
            Scratch(folder).mark("another" if owner == "another run" else standing.run_id)
        assert command("down") == 50
        assert not lives(standing)
        assert folder.exists()
        assert f"{folder} (not removed" in capsys.readouterr().err
        assert (standing.run_dir / STATE_FILE).exists()

    def test_of_an_earlier_boot_only_the_files_are_removed(self, up: Up) -> None:
        standing = up.stack("one", boot_id="another")
        assert command("down") == 0
        row = read_row(standing.services[0].pid)
        assert row is not None
        assert not row.ended, "whoever has the pid now is not of that stack"
        assert not standing.tmp_dir.exists()

    def test_two_at_once_both_find_it_down(self, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
        standing = up.stack("one")
        take_down = StandingStack.take_down

        def overtaken(standing: StandingStack, **options: Any) -> Any:
            left = take_down(standing, **options)
            Scratch(standing.tmp_dir).remove()
            module.forget(standing.run_dir)
            return left

        monkeypatch.setattr(StandingStack, "take_down", overtaken)
        assert command("down") == 0
        assert not lives(standing)

    def test_an_unreadable_one_that_was_asked_for_is_a_usage_error(
        self, up: Up, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = up.damaged("bad")
        assert main(["down", "--run-dir", str(path.parent)]) == UsageError.exit_code
        assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "typed"),
    [
        ("{root}/runs/20260101T000000Z-0", "./noxw -s down"),
        ("{root}/elsewhere", "./noxw -s down -- --run-dir {root}/elsewhere"),
        ("{root}/a b", "./noxw -s down -- --run-dir '{root}/a b'"),
    ],
)
def test_the_command_that_takes_a_stack_down_names_a_folder_that_would_not_be_found(
    up: Up, folder: str, typed: str
) -> None:
    assert takedown.down_command(Path(folder.format(root=up.root))) == typed.format(root=up.root)
