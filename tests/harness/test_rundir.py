"""What a run writes is whole or absent; its timeline survives a full disk; its scratch folder suits Unix sockets."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DoctorError, UsageError
from harness.eventlog import EventLog
from harness.rundir import RunDir, write_json, write_text
from harness.scratch import LONGEST_SOCKET_NAME, SOCKET_PATH_LIMIT, Scratch, make_scratch

FULL = OSError(28, "No space left on device")


def full_disk(*_args: object, **_options: object) -> int:
    raise FULL


class HandClock:
    """A monotonic clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_run_folder_is_new_and_the_latest(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = RunDir.create(tmp_path / "runs", now=lambda: at)
    second = RunDir.create(tmp_path / "runs", now=lambda: at)
    assert re.fullmatch(r"20260102T030405Z-[0-9a-f]{8}", first.run_id)
    assert first.path == tmp_path / "runs" / first.run_id != second.path
    assert first.log("engine-0") == first.path / "logs" / "engine-0.log"
    assert first.logs.is_dir()
    assert (tmp_path / "runs" / "latest").readlink() == Path(second.run_id)
    assert (tmp_path / "runs" / "latest").resolve() == second.path


def test_racing_runs_leave_one_whole_link_and_nothing_else(tmp_path: Path) -> None:
    made: list[RunDir] = []
    threads = [threading.Thread(target=lambda: made.append(RunDir.create(tmp_path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name for path in tmp_path.iterdir()} == {run.path.name for run in made} | {"latest"}
    assert (tmp_path / "latest").resolve() in {run.path for run in made}


def test_the_latest_run_can_be_read_at_every_moment(tmp_path: Path) -> None:
    RunDir.create(tmp_path)
    done = threading.Event()
    failures: list[OSError] = []

    def read() -> None:
        while not done.is_set():
            try:
                (tmp_path / "latest").readlink()
            except OSError as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        RunDir.create(tmp_path)
    done.set()
    reader.join()
    assert failures == []


def test_the_user_may_name_an_empty_or_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "new" / "deep with spaces"):
        run = RunDir.create(tmp_path / "runs", at=place)
        assert run.path == place
        assert not (tmp_path / "runs" / "latest").is_symlink(), "a run elsewhere is not the project's newest"


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_named_folder_with_something_in_it_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "mine"
    if kind == "folder":
        place.mkdir()
        (place / "notes").write_text("keep")
    else:
        place.write_text("keep")
    with pytest.raises(UsageError, match="is not empty"):
        RunDir.create(tmp_path / "runs", at=place)
    assert (place / "notes" if kind == "folder" else place).read_text() == "keep"
    assert not (tmp_path / "runs" / "latest").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    with pytest.raises(DoctorError, match="cannot be written") as raised:
        RunDir.create(tmp_path / "runs")
    assert str(tmp_path / "runs") in str(raised.value)


def test_json_is_readable_and_plain(tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "v.json", {"path": tmp_path, "nan": math.nan, "inf": [math.inf, -math.inf], "ä": (1, None)}
    )
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
        "path": str(tmp_path),
        "nan": "NaN",
        "inf": ["Infinity", "-Infinity"],
        "ä": [1, None],
    }
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path / "verdict.json", "old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(DoctorError, match="No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_events_are_stamped_from_the_start_of_the_run_and_flushed_at_once(tmp_path: Path) -> None:
    clock = HandClock()
    with EventLog(tmp_path / "events.jsonl", monotonic=clock) as log:
        clock.now += 1.5
        log.emit("phase", phase="ready", seconds=math.nan)
        log.record({"kind": "step", "t": 101.25, "step": 1}, source="trainer")
        lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines == [
        {"t": 1.5, "source": "harness", "kind": "phase", "phase": "ready", "seconds": "NaN"},
        {"t": 1.25, "source": "trainer", "kind": "step", "step": 1},
    ]
    assert math.isnan(log.events[0]["seconds"])
    assert log.events[1:] == lines[1:]


def test_events_of_many_threads_keep_their_lines_and_their_order(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", monotonic=HandClock())
    with log:
        threads = [
            threading.Thread(target=lambda n=n: [log.emit("note", by=n, at=i, pad="x" * 500) for i in range(50)])
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    on_disk = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert on_disk == log.events
    assert len(on_disk) == 400


def test_a_full_disk_ends_nothing_and_the_file_keeps_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path / "events.jsonl", monotonic=HandClock())
    log.emit("before")
    real_write: Callable[[int, Any], int] = os.write
    calls: list[int] = []

    def half_then_full(handle: int, data: bytes) -> int:
        calls.append(handle)
        if len(calls) > 1:
            raise FULL
        return real_write(handle, data[:10])

    monkeypatch.setattr(os, "write", half_then_full)
    log.emit("lost")
    log.emit("after")
    log.close()
    assert [event["kind"] for event in log.events] == ["before", "lost", "after"]
    assert [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()] == ["before"]
    with pytest.raises(DoctorError, match="No space left"):
        log.require_written()


def test_a_disk_that_cannot_even_be_cut_back_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EventLog(tmp_path / "events.jsonl", monotonic=HandClock()) as log:
        log.require_written()
        monkeypatch.setattr(os, "write", full_disk)
        monkeypatch.setattr(os, "ftruncate", full_disk)
        log.emit("lost")
        assert log.failed is not None


def test_whoever_records_an_event_says_whose_it_is(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl", monotonic=HandClock()) as log:
        log.record({"kind": "step", "source": "observer"}, source="trainer")
    assert [event["source"] for event in log.events] == ["trainer"]


@pytest.mark.parametrize("told", [10**400, -1, math.nan, math.inf, "soon", True, None])
def test_a_time_that_no_clock_tells_is_the_time_of_its_arrival(tmp_path: Path, told: object) -> None:
    with EventLog(tmp_path / "events.jsonl", monotonic=HandClock()) as log:
        log.record({"kind": "step", "t": told}, source="trainer")
    assert [event["t"] for event in log.events] == [0.0]


def test_text_that_utf_8_lacks_is_written_as_its_escape(tmp_path: Path) -> None:
    text = "half of a pair: \ud83d"
    with EventLog(tmp_path / "events.jsonl", monotonic=HandClock()) as log:
        log.emit("note", text=text)
    assert json.loads((tmp_path / "events.jsonl").read_text())["text"] == text
    assert json.loads(write_json(tmp_path / "v.json", [text]).read_text()) == [text]


def test_events_after_the_end_are_kept_in_memory(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", monotonic=HandClock())
    log.close()
    log.emit("late")
    log.close()
    assert [event["kind"] for event in log.events] == ["late"]


def test_the_scratch_folder_goes_with_all_its_content(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    left = scratch.path / "config" / "left"
    left.parent.mkdir(parents=True)
    left.touch()
    assert scratch.leftovers() == [str(scratch.path), str(left.parent), str(left)]
    assert scratch.remove() == []
    assert scratch.leftovers() == []
    assert scratch.remove() == []


def test_what_cannot_be_removed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch(tmp_path / "scratch")
    scratch.path.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", full_disk)
        assert scratch.remove() == [str(scratch.path)]


def test_a_short_tmpdir_is_used_privately(tmp_path: Path) -> None:
    with_room = Path("/tmp")
    scratch = make_scratch({"TMPDIR": str(with_room)}, short=tmp_path / "not-used")
    try:
        assert scratch.path.parent == with_room
        assert scratch.path.stat().st_mode & 0o777 == 0o700
    finally:
        scratch.remove()


@pytest.mark.parametrize("kind", ["long", "with a space", "relative"])
def test_a_tmpdir_that_does_not_suit_sockets_is_passed_over(kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="t x" if kind == "with a space" else "t", dir="/tmp") as base:
        wanted = {"long": f"{base}/{'d' * 150}", "with a space": base, "relative": "."}[kind]
        Path(wanted).mkdir(exist_ok=True)
        scratch = make_scratch({"TMPDIR": wanted})
    try:
        assert scratch.path.parent == Path("/tmp")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(scratch.path / ("s" * LONGEST_SOCKET_NAME)))
    finally:
        scratch.remove()


def test_the_longest_path_that_is_accepted_still_holds_a_socket(tmp_path: Path) -> None:
    room = SOCKET_PATH_LIMIT - LONGEST_SOCKET_NAME - 1 - len("smokestack-12345678") - 1
    base = Path("/tmp") / f"t{os.getpid()}"
    fits, too_long = (base / ("p" * (room - len(str(base)) - 1 + extra)) for extra in (0, 1))
    try:
        for place in (fits, too_long):
            place.mkdir(parents=True)
        scratch = make_scratch({"TMPDIR": str(fits)}, short=Path("/nowhere"))
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(scratch.path / ("s" * LONGEST_SOCKET_NAME)))
        scratch.remove()
        with pytest.raises(DoctorError, match="no temporary folder with a short path"):
            make_scratch({"TMPDIR": str(too_long)}, short=too_long)
    finally:
        for place in (fits, too_long, base):
            place.rmdir()


def test_a_tmpdir_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="/nowhere cannot be used") as caught:
        make_scratch({"TMPDIR": "/nowhere"}, short=tmp_path)
    assert "TMPDIR" in str(caught.value.hint)
