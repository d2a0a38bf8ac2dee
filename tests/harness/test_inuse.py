"""An environment in use is shared by runs and closed to installs, for as long as a process of any of them lives."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.clock import Deadline, InterruptibleClock
from harness.errors import DoctorError, InstallError, Interrupted
from harness.flag import Flag
from harness.inuse import InUse, in_use_file
from scripts.errors import InstallError as InstallRefused
from scripts.exclusion import unused
from scripts.layout import Layout


def take(one: InUse, *, seconds: float = 10.0, interrupt: Flag | None = None) -> list[str]:
    """Take it, and return what was said meanwhile."""
    said: list[str] = []
    clock = InterruptibleClock(interrupt)
    one.take(Deadline.after(clock, seconds), clock, said.append)
    return said


def may_install(root: Path) -> bool:
    """Whether the build plane would change the environment now."""
    layout = Layout(root, "cpu")
    try:
        with unused(layout.in_use, layout.environment):
            return True
    except InstallRefused:
        return False


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[InUse]:
    with InUse(in_use_file(tmp_path, "cpu")) as one:
        yield one


def test_both_planes_mean_the_same_file(tmp_path: Path) -> None:
    assert in_use_file(tmp_path, "cpu") == Layout(tmp_path, "cpu").in_use


def test_several_runs_share_an_environment(in_use: InUse, tmp_path: Path) -> None:
    assert take(in_use) == []
    with InUse(in_use.path) as other:
        assert take(other) == []
    assert not may_install(tmp_path)


def test_an_install_is_refused_until_the_last_run_lets_go(in_use: InUse, tmp_path: Path) -> None:
    assert may_install(tmp_path)
    take(in_use)
    assert not may_install(tmp_path)
    in_use.release()
    assert may_install(tmp_path)


def test_a_process_that_inherited_it_holds_it_after_the_run(in_use: InUse, tmp_path: Path) -> None:
    take(in_use)
    with subprocess.Popen(["sleep", "600"], pass_fds=in_use.fds) as process:
        in_use.release()
        layout = Layout(tmp_path, "cpu")
        with pytest.raises(InstallRefused) as caught, unused(layout.in_use, layout.environment):
            pass
        assert caught.value.found == f"pid {process.pid}: sleep 600"
        process.kill()
        process.wait()
        assert may_install(tmp_path)


def test_other_children_do_not_hold_it(in_use: InUse, tmp_path: Path) -> None:
    take(in_use)
    with subprocess.Popen(["sleep", "600"]) as process:
        in_use.release()
        assert may_install(tmp_path)
        process.kill()


def test_a_run_waits_for_an_install_at_work_and_says_so(in_use: InUse, tmp_path: Path) -> None:
    layout = Layout(tmp_path, "cpu")
    said: list[str] = []
    clock = InterruptibleClock()
    with ExitStack() as install:
        install.enter_context(unused(layout.in_use, layout.environment))

        def say(line: str) -> None:
            said.append(line)
            install.close()

        in_use.take(Deadline.after(clock, 10), clock, say)
    assert said == ["waiting for an install that is changing this stack's environment"]
    assert not may_install(tmp_path)


def test_an_install_that_does_not_end_ends_the_run_at_its_deadline(in_use: InUse, tmp_path: Path) -> None:
    layout = Layout(tmp_path, "cpu")
    with unused(layout.in_use, layout.environment), pytest.raises(InstallError, match="still being changed"):
        take(in_use, seconds=0.05)
    assert in_use.fds == ()


def test_an_interrupt_ends_the_waiting(in_use: InUse, tmp_path: Path) -> None:
    interrupt = Flag()
    interrupt.set()
    layout = Layout(tmp_path, "cpu")
    with unused(layout.in_use, layout.environment), pytest.raises(Interrupted):
        take(in_use, interrupt=interrupt)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("a file")
    with pytest.raises(DoctorError, match="cannot be written"):
        take(InUse(in_use_file(tmp_path, "cpu")))
