"""What the doctor asks programs and files of this machine: in time, once, and nothing is left running."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

from doctor_fakes import FakeMachine, subject
from doctor_itself import ends

from scripts.doctor.asking import Questions
from scripts.doctor.real_machine import RealMachine


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    hanging = tmp_path / "tool"
    hanging.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{marker}\nwait\n")
    hanging.chmod(0o755)
    began = time.monotonic()
    answer = Questions().ask([str(hanging)], {"PATH": os.environ["PATH"]}, 1.0)
    assert time.monotonic() - began < 5
    assert (answer.status, answer.problem) == (None, "tool did not answer within 1 s")
    assert ends(int(marker.read_text()))


def test_a_program_that_leaves_a_child_behind_is_not_waited_for_and_the_child_is_ended(tmp_path: Path) -> None:
    leaving = tmp_path / "tool"
    leaving.write_text("#!/bin/sh\nsleep 600 &\necho $!\n")
    leaving.chmod(0o755)
    answer = Questions().ask([str(leaving)], {"PATH": os.environ["PATH"]}, 20.0)
    assert answer.status == 0
    assert ends(int(answer.output))


def test_a_program_that_talks_without_end_is_ended_too() -> None:
    answer = Questions().ask(["yes"], {"PATH": os.environ["PATH"]}, 0.3)
    assert (answer.status, answer.problem) == (None, "yes did not answer within 0.3 s")


def test_when_the_examination_ends_so_do_its_questions() -> None:
    questions = Questions()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(questions.ask(["sleep", "600"], os.environ, 60.0)))
    asking.start()
    deadline = time.monotonic() + 10
    while not questions._open and time.monotonic() < deadline:
        asking.join(0.01)
    questions.close()
    asking.join(10)
    assert [each.status for each in answers] == [-signal.SIGKILL]
    assert questions.ask(["true"], os.environ, 5.0).problem == "true cannot be run: the examination is over"


def test_a_program_whose_start_hangs_hangs_its_own_question_only(tmp_path: Path) -> None:
    """As on a dead mount: a lease on the file makes whoever runs it wait until it is given back."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    questions, answers = Questions(), []
    asking = threading.Thread(target=lambda: answers.append(questions.ask([str(slow)], os.environ, 60.0)))
    former = signal.signal(signal.SIGIO, signal.SIG_IGN)
    lease = os.open(slow, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        asking.start()
        asking.join(0.1)
        assert questions.ask(["echo", "here"], os.environ, 5.0).output == "here\n"
        questions.close()
    finally:
        os.close(lease)
        signal.signal(signal.SIGIO, former)
    asking.join(10)
    assert [each.problem for each in answers] == ["slow cannot be run: the examination is over"]


def test_a_program_that_is_not_there_or_fails_says_so_in_a_line() -> None:
    questions = Questions()
    assert questions.ask(["no-such-tool", "--version"], os.environ, 5.0).in_short == "no no-such-tool"
    failing = questions.ask(["sh", "-c", "echo one; echo two >&2; exit 3"], os.environ, 5.0)
    assert (failing.status, failing.good, failing.in_short) == (3, False, "ended with 3: two")


def test_the_same_question_is_put_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    machine = RealMachine()
    for _ in range(3):
        machine.ask(["sh", "-c", f"echo . >>{asked}"])
    machine.close()
    assert asked.read_text() == ".\n"


def test_files_and_folders_are_read_as_they_are(tmp_path: Path) -> None:
    machine = RealMachine()
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").symlink_to("a")
    assert (machine.read_text(tmp_path / "a"), machine.read_text(tmp_path / "c")) == ("text", None)
    assert machine.read_text("/proc/sys/kernel/osrelease")
    assert (machine.entries(tmp_path), machine.entries(tmp_path / "a")) == (("a", "b"), None)
    assert (machine.size(tmp_path / "a"), machine.owner(tmp_path / "a")) == (4, os.getuid())
    assert (machine.link(tmp_path / "b"), machine.link(tmp_path / "a")) == ("a", None)
    space = machine.space(tmp_path / "not" / "there")
    assert space is not None
    assert (space.path, space.total >= space.free > 0) == (str(tmp_path), True)
    assert subject(FakeMachine()).machine.read_text("/etc/passwd") is None
