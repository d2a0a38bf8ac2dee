"""Asked to end once, the run is interrupted; asked again, its teardown is hurried."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clock import InterruptibleClock
from harness.errors import Interrupted
from harness.signals import SAME_REQUEST_S, InterruptSignals, die_with_parent

ROOT = Path(__file__).parents[2]


class HandClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> HandClock:
    return HandClock()


@pytest.fixture
def signals(time: HandClock) -> Iterator[InterruptSignals]:
    with InterruptSignals(monotonic=time) as signals:
        yield signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_the_runs_clock(signals: InterruptSignals, number: signal.Signals) -> None:
    clock = InterruptibleClock(signals.interrupt)
    clock.sleep(0)
    signal.raise_signal(number)
    with pytest.raises(Interrupted):
        clock.sleep(60)
    assert not signals.urgent.is_set()
    assert signals.received == [number.name]


def test_a_later_signal_is_urgent(signals: InterruptSignals, time: HandClock) -> None:
    signal.raise_signal(signal.SIGINT)
    time.now += SAME_REQUEST_S * 2
    signal.raise_signal(signal.SIGTERM)
    assert signals.urgent.is_set()


def test_the_same_request_that_arrives_twice_is_not_urgent(signals: InterruptSignals, time: HandClock) -> None:
    signal.raise_signal(signal.SIGINT)
    time.now += SAME_REQUEST_S / 2
    signal.raise_signal(signal.SIGTERM)
    assert not signals.urgent.is_set()


def test_the_old_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with InterruptSignals():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with InterruptSignals() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert not signals.interrupt.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("environ", [{}, {"SMOKESTACK_DIE_WITH_PARENT": ""}, {"SMOKESTACK_DIE_WITH_PARENT": "0"}])
def test_a_run_outlives_its_parent_unless_asked(environ: dict[str, str]) -> None:
    assert not die_with_parent(environ)


CHILD = """
import os, signal
from harness.signals import InterruptSignals, die_with_parent
signal.alarm(60)
with InterruptSignals() as signals:
    asked = die_with_parent(os.environ)
    os.write(1, b"watching %d\\n" % asked)
    signals.interrupt.wait()
    os.write(1, ",".join(signals.received).encode() + b"\\n")
"""


def test_a_run_is_asked_to_end_when_its_parent_is_killed() -> None:
    """The parent is a process of its own, killed without a chance to pass anything on."""
    read, write = os.pipe()
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {CHILD!r}], stdout={write})\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "SMOKESTACK_DIE_WITH_PARENT": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", parent], env=environment, pass_fds=(write,)) as popen:
        os.close(write)
        with os.fdopen(read) as output:
            assert output.readline() == "watching 1\n"
            popen.kill()
            assert output.readline() == "SIGTERM\n"


def test_a_run_whose_parent_has_ended_already_asks_itself_to_end() -> None:
    environment = {**os.environ, "SMOKESTACK_DIE_WITH_PARENT": str(2**22 + 1), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "watching 1\nSIGTERM\n"
