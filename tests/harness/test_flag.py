"""A flag may be set by a signal handler: in the middle of whatever the same thread does with it."""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from harness.flag import Flag


def test_it_is_set_once_and_for_all() -> None:
    flag = Flag()
    assert not flag.is_set()
    assert not flag.wait(0)
    flag.set()
    assert flag.is_set()
    assert flag.wait(0)
    assert flag.wait(0)


def test_a_wait_ends_when_it_is_set_and_so_does_another() -> None:
    flag, ended = Flag(), list[bool]()
    waiting = [threading.Thread(target=lambda: ended.append(flag.wait(30))) for _ in range(2)]
    for one in waiting:
        one.start()
    began = time.monotonic()
    flag.set()
    for one in waiting:
        one.join(10)
    assert ended == [True, True]
    assert time.monotonic() - began < 10


def set_at_each_step_of_a_wait(make: type[Flag] | type[threading.Event]) -> int:
    """Waits again and again, each time interrupted one line later by its setting; returns how many ways there were.

    Raises TimeoutError when one of these waits does not end.
    """
    steps = 0
    while True:
        interrupted = threading.Event()
        thread = threading.Thread(target=_wait, args=(make(), steps, interrupted), daemon=True)
        thread.start()
        thread.join(2)
        if thread.is_alive():
            raise TimeoutError(f"set at step {steps}")
        if not interrupted.is_set():
            return steps
        steps += 1


def _wait(flag: Flag | threading.Event, at: int, interrupted: threading.Event) -> None:
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == at + 1:
                sys.settrace(None)
                interrupted.set()
                flag.set()
                return None
        return trace

    sys.settrace(trace)
    flag.wait(0.001)
    sys.settrace(None)


def test_whoever_sets_it_in_the_middle_of_a_wait_does_not_block() -> None:
    assert set_at_each_step_of_a_wait(Flag) >= 3


def test_an_event_of_the_standard_library_is_why() -> None:
    with pytest.raises(TimeoutError, match="set at step"):
        set_at_each_step_of_a_wait(threading.Event)
