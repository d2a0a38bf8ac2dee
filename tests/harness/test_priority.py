"""The lower share of the cores that an engine on the CPU gets, as the kernel tells it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import priority
from harness.clock import SteadyClock
from harness.priority import LEAST, autogroup_of, lower

CLOCK = SteadyClock()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """The leader of a session of its own."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as popen:
        yield popen
        popen.kill()


def shares(pid: int) -> tuple[int, int | None]:
    return os.getpriority(os.PRIO_PROCESS, pid), autogroup_of(pid)


def lowered(by: int) -> tuple[int, int | None]:
    """What the leader of a new session has then: it is in one where the kernel has them, be this process or not."""
    nice, own = shares(os.getpid())
    has_sessions = Path("/proc/self/autogroup").exists()
    return min(nice + by, LEAST), min((nice if own is None else own) + by, LEAST) if has_sessions else None


@pytest.mark.parametrize("by", [10, 40], ids=["by some", "by more than there is"])
def test_a_session_gets_less_than_whoever_started_it(by: int, child: subprocess.Popen[bytes]) -> None:
    assert lower(child.pid, by, CLOCK) is None
    assert shares(child.pid) == lowered(by)


def test_a_process_that_has_ended_is_left_to_whoever_looks_after_it() -> None:
    assert lower(2**22 + 1, 10, CLOCK) is None


class Kernel:
    """Refuses to take an autogroup's value with `refusals`, one at a time; then takes it."""

    def __init__(self, *refusals: int) -> None:
        self.refusals = list(refusals)
        self.taken: list[str] = []

    def write_text(self, text: str) -> None:
        if self.refusals:
            refused = self.refusals.pop(0)
            raise OSError(refused, os.strerror(refused))
        self.taken.append(text)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "POLL_S", 0.001)


def lower_by(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, own: int | None = 3) -> str | None:
    """For a process whose session, or else which itself, has the value 3."""
    monkeypatch.setattr(priority, "autogroup_of", {7: 0, os.getpid(): own}.get)
    monkeypatch.setattr(os, "getpriority", lambda *_: 3 if own is None else 0)
    monkeypatch.setattr(priority, "Path", lambda _: kernel)
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    return lower(7, 10, CLOCK)


def test_a_kernel_that_asks_for_patience_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(errno.EAGAIN, errno.EAGAIN)
    assert lower_by(kernel, monkeypatch) is None
    assert kernel.taken == ["13"]


@pytest.mark.parametrize("refusal", [errno.EROFS, errno.EAGAIN])
def test_what_hinders_it_is_said(refusal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "PATIENCE_S", 0.01)
    kernel = Kernel(*[refusal] * 1000)
    assert lower_by(kernel, monkeypatch) == f"{os.strerror(refusal)}: pid 7 keeps its share of the cores"
    assert not kernel.taken


def test_a_process_in_no_session_is_compared_by_its_own_niceness(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    assert lower_by(kernel, monkeypatch, own=None) is None
    assert kernel.taken == ["13"]


@pytest.mark.parametrize(("told", "value"), [("/autogroup-4711 nice -5\n", -5), ("", None), (None, None)])
def test_what_the_kernel_tells_of_a_session(
    told: str | None, value: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told is not None:
        (tmp_path / "autogroup").write_text(told)
    monkeypatch.setattr(priority, "Path", lambda _: tmp_path / "autogroup")
    assert autogroup_of(1) == value
