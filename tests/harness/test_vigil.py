"""Waiting for a call that blocks never looks away: an interrupt, a death or the deadline ends it at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from harness.clock import InterruptibleClock, SteadyClock
from harness.errors import Interrupted, ServiceDiedError, SmokestackError
from harness.vigil import AFTERMATH_S, WATCH_INTERVAL_S, Vigil

LATE = SmokestackError("not in time")
PROMPT_S = 2.0


@pytest.fixture
def hang() -> Iterator[Callable[[], bool]]:
    """A call that does not return before the test ends."""
    over = threading.Event()
    yield over.wait
    over.set()


def nothing() -> None:
    """All processes are well."""


def dead() -> None:
    raise ServiceDiedError("engine-0 ended")


def elapsed(began: float) -> float:
    return time.monotonic() - began


class TestCall:
    def test_its_answer_comes_back_without_delay(self) -> None:
        began = time.monotonic()
        assert Vigil(SteadyClock(), nothing).call(lambda: 7, 10.0, LATE) == 7
        assert elapsed(began) < WATCH_INTERVAL_S

    def test_an_interrupt_ends_it_while_the_call_still_hangs(self, hang: Callable[[], bool]) -> None:
        clock = InterruptibleClock()
        threading.Timer(0.05, clock.interrupt.set).start()
        began = time.monotonic()
        with pytest.raises(Interrupted):
            Vigil(clock, nothing).call(hang, 30.0, LATE)
        assert elapsed(began) < PROMPT_S

    def test_a_process_that_ends_meanwhile_ends_it(self, hang: Callable[[], bool]) -> None:
        with pytest.raises(ServiceDiedError):
            Vigil(SteadyClock(), dead).call(hang, 30.0, LATE)

    def test_the_deadline_ends_it(self, hang: Callable[[], bool]) -> None:
        began = time.monotonic()
        with pytest.raises(SmokestackError, match="not in time"):
            Vigil(SteadyClock(), nothing).call(hang, 0.05, LATE)
        assert elapsed(began) < PROMPT_S

    def test_its_own_error_is_raised_when_everything_lives(self) -> None:
        with pytest.raises(ZeroDivisionError):
            Vigil(SteadyClock(), nothing).call(lambda: 1 // 0, 10.0, LATE)

    def test_a_death_that_shows_a_moment_later_explains_the_failed_call(self) -> None:
        shows_at = time.monotonic() + AFTERMATH_S / 2

        def watch() -> None:
            if time.monotonic() >= shows_at:
                dead()

        with pytest.raises(ServiceDiedError):
            Vigil(SteadyClock(), watch).call(lambda: 1 // 0, 10.0, LATE)

    def test_an_abandoned_call_does_not_keep_the_program_from_ending(self, hang: Callable[[], bool]) -> None:
        with pytest.raises(SmokestackError):
            Vigil(SteadyClock(), nothing).call(hang, 0.01, LATE)
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "vigil")


class TestUntil:
    def test_it_looks_after_the_processes_at_an_interval(self) -> None:
        looks: list[float] = []
        Vigil(SteadyClock(), lambda: looks.append(time.monotonic())).until(lambda: False, 2.5 * WATCH_INTERVAL_S)
        assert 3 <= len(looks) <= 4

    def test_it_looks_once_more_before_it_gives_up(self) -> None:
        began = time.monotonic()

        def watch() -> None:
            if time.monotonic() - began >= WATCH_INTERVAL_S / 2:
                dead()

        with pytest.raises(ServiceDiedError):
            Vigil(SteadyClock(), watch).until(lambda: False, WATCH_INTERVAL_S / 2)
