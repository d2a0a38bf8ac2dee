"""A service starts as its specification says, or it is said why not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.clock import Deadline
from harness.errors import DoctorError, InstallError
from harness.process import Process, describe_exit
from harness.proctable import environment_of, read_row
from harness.services.spec import ServiceSpec
from tests.harness.scripted import RUN, Start, service, told
from tests.harness.waiting import CLOCK


def test_a_service_starts_in_its_own_session_with_exactly_its_environment(start: Start, tmp_path: Path) -> None:
    process = start("print('out', flush=True); print('err', file=sys.stderr, flush=True); tell('up'); rest()")
    assert told(tmp_path / "up") == process.id
    row = read_row(process.pid)
    assert row is not None
    assert row.session == process.pid == process.session
    environment = environment_of(process.pid)
    assert environment.pop("SMOKESTACK_RUN_ID") == process.run_id
    assert environment.pop("SMOKESTACK_SERVICE") == "service-0"
    assert environment == {"PATH": os.defpath}
    assert process.spec.log.read_text() == "out\nerr\n"
    assert process.alive()


def test_a_service_reads_nothing_from_the_terminal(start: Start) -> None:
    read, write = os.pipe()
    before = os.dup(0)
    os.write(write, b"typed by somebody\n")
    os.dup2(read, 0)
    try:
        process = start("sys.exit(7 if sys.stdin.readline() == '' else 8)")
        assert process.wait(Deadline.after(CLOCK, 20), CLOCK) == 7
    finally:
        os.dup2(before, 0)
        for handle in (read, write, before):
            os.close(handle)


def test_only_the_named_descriptors_are_inherited(tmp_path: Path) -> None:
    read, write = os.pipe()
    other_read, other_write = os.pipe()
    os.set_inheritable(other_write, True)
    script = f"os.write({write}, b'hello')\ntry: os.fstat({other_write})\nexcept OSError: sys.exit(0)\nsys.exit(1)"
    process = Process(replace(service(tmp_path, script), pass_fds=(write,)), run_id=RUN)
    try:
        process.start()
        assert process.wait(Deadline.after(CLOCK, 20), CLOCK) == 0
        assert os.read(read, 5) == b"hello"
    finally:
        process.kill()
        for handle in (read, write, other_read, other_write):
            os.close(handle)


def test_a_service_is_started_once(start: Start) -> None:
    process = start("rest()")
    with pytest.raises(RuntimeError, match="started before"):
        process.start()


def test_a_service_that_never_started_can_be_stopped(tmp_path: Path) -> None:
    process = Process(service(tmp_path, "rest()"), run_id=RUN)
    assert process.stop().left == ()
    assert not process.alive()
    with pytest.raises(RuntimeError, match="not started"):
        _ = process.pid


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, argv=("/nowhere/vllm-rs", "serve")),
        lambda spec: replace(spec, cwd=Path("/nowhere/at-all")),
    ],
    ids=["program", "folder"],
)
def test_a_missing_program_or_folder_is_named(tmp_path: Path, change: Callable[[ServiceSpec], ServiceSpec]) -> None:
    process = Process(change(service(tmp_path, "")), run_id=RUN)
    with pytest.raises(InstallError, match="service cannot be started: No such file") as raised:
        process.start()
    assert "/nowhere" in str(raised.value)
    assert process.stop().left == ()


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    process = Process(replace(service(tmp_path, ""), log=tmp_path / "no-such-folder" / "service.log"), run_id=RUN)
    with pytest.raises(DoctorError, match=r"service\.log cannot be written"):
        process.start()


def test_exit_statuses_are_put_in_words() -> None:
    assert describe_exit(3) == "ended with exit status 3"
    assert describe_exit(-15) == "ended by SIGTERM"
    assert "memory" in describe_exit(-9)
