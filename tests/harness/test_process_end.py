"""A service ends with everything that came from it, and nothing else on the machine is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.clock import Deadline, InterruptibleClock
from harness.ending import send
from harness.errors import Interrupted, ServiceDiedError
from harness.process import Process, RecordedProcess
from harness.proctable import ProcessId, ProcessTable, environment_of, read_row
from harness.survivors import ProcessTree, find_survivors
from tests.harness.scripted import PRELUDE, RESTING_CHILD, RUN, Start, runs, service, spawning, told
from tests.harness.waiting import CLOCK, until


def test_a_polite_service_is_asked_once_and_not_killed(start: Start, tmp_path: Path) -> None:
    process = start(
        "asked = []\n"
        "signal.signal(signal.SIGTERM, lambda *a: asked.append(1))\n"
        "tell('up')\n"
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "os._exit(len(asked))\n"
    )
    told(tmp_path / "up")
    stopped = process.stop(clock=CLOCK)
    assert (stopped.returncode, stopped.killed, stopped.left) == (1, (), ())
    assert not process.alive()
    assert read_row(process.pid) is None, "the leader was not reaped"
    assert process.stop() == stopped, "stopping again changes nothing"


def test_a_service_that_ignores_sigterm_is_killed_after_the_grace(start: Start, tmp_path: Path) -> None:
    process = start("signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('up'); rest()")
    told(tmp_path / "up")
    stopped = process.stop(0.1, clock=CLOCK)
    assert stopped.returncode == -signal.SIGKILL
    assert stopped.killed == (process.id,)
    assert 0.1 <= stopped.seconds < 5


def test_a_child_in_another_process_group_that_blanked_its_environment_is_ended(start: Start, tmp_path: Path) -> None:
    # As vllm-rs does with its Python child, and setproctitle with the engine core's environment.
    child = "os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('child'); rest()"
    process = start(
        f"subprocess.Popen([sys.executable, '-c', {PRELUDE + child!r}], env={{}})\n"
        "signal.signal(signal.SIGTERM, lambda *a: os._exit(0))\nrest()"
    )
    child_id = told(tmp_path / "child")
    assert "SMOKESTACK_RUN_ID" not in environment_of(child_id.pid)
    stopped = process.stop(0.2, clock=CLOCK)
    assert (stopped.returncode, stopped.killed, stopped.left) == (0, (child_id,), ())
    assert not runs(child_id)


def test_orphans_of_a_killed_leader_are_found_by_its_session_and_asked(start: Start, tmp_path: Path) -> None:
    child = "os.setpgid(0, 0); tell('child'); rest()"
    process = start(f"subprocess.Popen([sys.executable, '-c', {PRELUDE + child!r}], env={{}})\nrest()")
    child_id = told(tmp_path / "child")
    send(process.id, signal.SIGKILL)
    until("the leader's end is seen", lambda: not process.alive())
    assert runs(child_id)
    with pytest.raises(ServiceDiedError, match="ended although it should run") as raised:
        process.check_alive()
    assert "SIGKILL" in str(raised.value.found)
    assert raised.value.log == process.spec.log
    stopped = process.stop(clock=CLOCK)
    assert (stopped.killed, stopped.left) == ((), ())
    assert not runs(child_id)


def test_a_recorded_child_in_a_session_of_its_own_is_ended_after_its_parent_has_gone(
    start: Start, tmp_path: Path
) -> None:
    child = "os.setsid(); tell('child'); rest()"
    process = start(f"subprocess.Popen([sys.executable, '-c', {PRELUDE + child!r}], env={{}})\nrest()")
    child_id = told(tmp_path / "child")
    assert child_id in {row.id for row in process.snapshot()}
    send(process.id, signal.SIGKILL)
    until("the leader's end is seen", lambda: not process.alive())
    assert process.kill().left == ()
    assert not runs(child_id)


def test_a_daemon_that_nobody_recorded_is_found_by_its_mark(start: Start, tmp_path: Path) -> None:
    daemon = "tell('daemon'); rest()"
    process = start(
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    subprocess.Popen([sys.executable, '-c', {PRELUDE + daemon!r}], start_new_session=True)\n"
        "    os._exit(0)\n"
        "os.wait(); rest()"
    )
    daemon_id = told(tmp_path / "daemon")
    assert daemon_id not in {row.id for row in process.snapshot()}
    stopped = process.stop(clock=CLOCK)
    assert (stopped.killed, stopped.left) == ((), ()), "it was asked, as the others were"
    assert not runs(daemon_id)


def test_a_stopped_process_is_woken_and_may_end_politely(start: Start, tmp_path: Path) -> None:
    process = start("signal.signal(signal.SIGTERM, lambda *a: os._exit(5)); tell('up'); rest()")
    told(tmp_path / "up")
    send(process.id, signal.SIGSTOP)
    until("it is stopped", lambda: any(row.stopped for row in process.snapshot()))
    assert process.alive()
    assert process.stop(clock=CLOCK).returncode == 5


def test_a_stopped_process_that_ignores_sigterm_is_killed(start: Start, tmp_path: Path) -> None:
    process = start("signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('up'); rest()")
    told(tmp_path / "up")
    send(process.id, signal.SIGSTOP)
    assert process.stop(0.1, clock=CLOCK).returncode == -signal.SIGKILL


def test_a_tree_that_keeps_forking_is_ended(start: Start, tmp_path: Path) -> None:
    process = start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "tell('up')\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        os.setpgid(0, 0); time.sleep(0.02); os.fork(); time.sleep(1); os._exit(0)\n"
        "    time.sleep(0.01)\n"
    )
    told(tmp_path / "up")
    assert process.stop(0.1, clock=CLOCK).left == ()
    assert all(row.session != process.session or row.ended for row in ProcessTable.read().values())


def test_urgency_ends_the_grace_but_not_the_work(start: Start, tmp_path: Path) -> None:
    child = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('child'); rest()"
    process = start("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + spawning(child))
    child_id = told(tmp_path / "child")
    urgent = threading.Event()
    timer = threading.Timer(0.1, urgent.set)
    timer.start()
    stopped = process.stop(60, urgent=urgent.is_set)
    timer.join()
    assert stopped.seconds < 10
    assert set(stopped.killed) == {process.id, child_id}
    assert stopped.left == ()


def test_an_interrupted_clock_ends_the_grace_but_not_the_work(start: Start, tmp_path: Path) -> None:
    process = start("signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('up'); rest()")
    told(tmp_path / "up")
    interrupted = InterruptibleClock()
    interrupted.interrupt.set()
    assert process.stop(60, clock=interrupted).returncode == -signal.SIGKILL


def test_waiting_for_a_service_is_interrupted_with_the_clock(start: Start) -> None:
    process = start("rest()")
    interrupted = InterruptibleClock()
    interrupted.interrupt.set()
    with pytest.raises(Interrupted):
        process.wait(Deadline.after(CLOCK, 20), interrupted)


def test_bystanders_with_the_stacks_names_survive(start: Start, tmp_path: Path, bystander: ProcessId) -> None:
    process = start("tell('up'); rest()")
    told(tmp_path / "up")
    process.snapshot()
    process.kill()
    assert runs(bystander)
    assert find_survivors(process.run_id, [process.tree]) == []


def test_another_run_and_another_service_survive(start: Start, tmp_path: Path) -> None:
    other_run = Process(service(tmp_path, "tell('other'); rest()", name="service-0"), run_id="another-run")
    other_run.start()
    first, second = start("tell('first'); rest()"), start("tell('second'); rest()")
    try:
        for name in ("other", "first", "second"):
            told(tmp_path / name)
        first.kill()
        assert second.alive()
        assert other_run.alive()
    finally:
        other_run.kill()


def test_survivors_are_named_with_their_service(start: Start, tmp_path: Path) -> None:
    process = start("tell('up'); rest()")
    told(tmp_path / "up")
    by_tree = find_survivors(process.run_id, [process.tree])
    by_mark = find_survivors(process.run_id, [])
    assert by_tree == by_mark
    assert [(one.pid, one.service) for one in by_tree] == [(process.pid, "service-0")]
    assert sys.executable in by_tree[0].cmd
    process.kill()
    assert find_survivors(process.run_id, [process.tree]) == []


def test_neither_the_harness_nor_its_own_session_is_ever_part_of_a_service() -> None:
    me = read_row(os.getpid())
    assert me is not None
    with subprocess.Popen([sys.executable, "-c", RESTING_CHILD]) as neighbour:
        tree = ProcessTree("service", RUN, leader=ProcessId(1, 0), session=me.session, recorded={me.id})
        rows = tree.update(ProcessTable.read(), marks=True)
        neighbour.kill()
    assert {row.pid for row in rows} <= {neighbour.pid}, "only what was recorded, and what descends from it"
    assert me.id not in {row.id for row in rows}


def test_a_shell_that_bears_a_copied_mark_loses_nobody_else_in_its_session(start: Start, tmp_path: Path) -> None:
    process = start("tell('up'); rest()")
    told(tmp_path / "up")
    marked = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env=MARKS)\nos._exit(0)"
    script = PRELUDE + (
        f"MARKS = {{'SMOKESTACK_RUN_ID': {process.run_id!r}, 'SMOKESTACK_SERVICE': 'service-0'}}\n"
        f"if os.fork() == 0:\n    {marked.replace(chr(10), chr(10) + '    ')}\n"
        "os.wait(); tell('shell'); rest()"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, start_new_session=True) as shell:
        shell_id = told(tmp_path / "shell")
        until("the mark is seen", lambda: len(find_survivors(process.run_id, [process.tree])) == 2)
        process.tree.update(ProcessTable.read(), marks=True)
        process.kill()
        assert find_survivors(process.run_id, []) == []
        assert runs(shell_id)
        shell.kill()


def test_a_signal_goes_to_no_later_process_with_the_same_pid(start: Start, tmp_path: Path) -> None:
    process = start("tell('up'); rest()")
    told(tmp_path / "up")
    assert not send(ProcessId(process.pid, process.start_time + 1), signal.SIGKILL)
    assert process.alive()


def test_a_recorded_service_is_found_and_ended_by_a_later_command(start: Start, tmp_path: Path) -> None:
    child = "os.setsid(); tell('child'); rest()"
    process = start(f"subprocess.Popen([sys.executable, '-c', {PRELUDE + child!r}], env={{}})\nrest()")
    child_id = told(tmp_path / "child")
    recorded = RecordedProcess.from_fields(json.loads(json.dumps(process.record().fields())))
    assert recorded.alive()
    stopped = recorded.stop(10, clock=CLOCK)
    assert stopped.left == ()
    assert not recorded.alive()
    assert not runs(child_id)
    assert process.stop().returncode == -signal.SIGTERM


def test_a_record_of_another_process_with_the_same_pid_ends_nothing(bystander: ProcessId) -> None:
    stale = RecordedProcess(
        "engine-0", bystander.pid, bystander.start_time - 1, session=bystander.pid, run_id="an-earlier-run",
        members=((bystander.pid, bystander.start_time - 1),),
    )  # fmt: skip
    assert not stale.alive()
    stopped = stale.stop(10, clock=CLOCK)
    assert (stopped.killed, stopped.left) == ((), ())
    assert runs(bystander)


def test_recorded_orphans_are_ended_after_their_leader_has_gone(start: Start, tmp_path: Path) -> None:
    child = "os.setpgid(0, 0); tell('child'); rest()"
    process = start(f"subprocess.Popen([sys.executable, '-c', {PRELUDE + child!r}], env={{}})\nrest()")
    child_id = told(tmp_path / "child")
    recorded = process.record()
    send(process.id, signal.SIGKILL)
    until("the leader's end is seen", lambda: not recorded.alive())
    assert recorded.stop(10, clock=CLOCK).left == ()
    assert not runs(child_id)
