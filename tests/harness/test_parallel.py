"""Runs side by side: each in its own process, no more at a time than asked for, and all of them asked to end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.parallel import Lost, side_by_side
from harness.signals import DIE_WITH_PARENT, InterruptSignals


def wait_until(there: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not there():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_each_is_run_in_a_process_of_its_own_that_ends_with_this_one() -> None:
    def run(item: int) -> tuple[int, int, str]:
        return item, os.getpid(), os.environ[DIE_WITH_PARENT]

    told = dict(side_by_side([1, 2, 3], run, 1))
    rows = [row for row in told.values() if not isinstance(row, Lost)]
    assert [item for item, _, _ in rows] == list(told) == [1, 2, 3]
    assert len({pid for _, pid, _ in rows} | {os.getpid()}) == 4
    assert {parent for _, _, parent in rows} == {str(os.getpid())}
    assert DIE_WITH_PARENT not in os.environ


def test_as_many_at_a_time_as_asked_for(tmp_path: Path) -> None:
    def run(item: int) -> int:
        (tmp_path / str(item)).touch()
        if item < 2:
            wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists())
            most = len(list(tmp_path.iterdir()))
            (tmp_path / f"done-{item}").touch()
            return most
        return len(list(tmp_path.glob("done-*")))

    told = dict(side_by_side([0, 1, 2], run, 2))
    assert told[0] == 2 or told[1] == 2
    assert told[2] in (1, 2), "begun once one of the first two was done"


def test_a_process_that_ends_without_an_account_costs_the_others_nothing() -> None:
    def run(item: int) -> int:
        if item == 1:
            os._exit(3)
        return item

    told = dict(side_by_side([0, 1, 2], run, 2))
    assert (told[0], told[2]) == (0, 2)
    assert str(told[1]) == "exit status 3"


def test_a_request_to_end_reaches_all_and_begins_no_more(tmp_path: Path) -> None:
    def run(item: int) -> str:
        with InterruptSignals() as signals:
            (tmp_path / str(item)).touch()
            if item == 1:
                wait_until((tmp_path / "0").exists)
                os.kill(os.getppid(), signal.SIGTERM)
            wait_until(signals.interrupt.is_set)
            return f"{item} took its stack down"

    told = dict(side_by_side([0, 1, 2], run, 2))
    assert told == {0: "0 took its stack down", 1: "1 took its stack down"}
    assert not (tmp_path / "2").exists()


def test_a_request_to_end_that_kills_a_process_is_no_loss_to_tell_of(tmp_path: Path) -> None:
    def run(item: int) -> str:
        with InterruptSignals() as signals:
            (tmp_path / str(item)).touch()
            if item == 0:
                wait_until((tmp_path / "1").exists)
                os.kill(os.getppid(), signal.SIGTERM)
            wait_until(signals.interrupt.is_set)
        if item == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return "told"

    assert dict(side_by_side([0, 1, 2], run, 2)) == {1: "told"}


def test_whoever_gives_up_on_the_answers_leaves_none_at_work(tmp_path: Path) -> None:
    def run(item: int) -> None:
        with InterruptSignals() as signals:
            (tmp_path / str(item)).touch()
            if item == 0:
                wait_until((tmp_path / "1").exists)
                return
            wait_until(signals.interrupt.is_set)
            (tmp_path / "taken-down").touch()

    with pytest.raises(BrokenPipeError), closing(side_by_side([0, 1, 2], run, 2)) as ended:
        for _ in ended:
            raise BrokenPipeError
    assert (tmp_path / "taken-down").exists()
    assert not (tmp_path / "2").exists()
