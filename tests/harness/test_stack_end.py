"""A stack of tiny programs is gone after its end, or is left standing for a later command that takes it down."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from harness.ending import Stopped
from harness.errors import UsageError
from harness.events import Failure, Note, ServiceExited
from harness.proctable import read_row
from harness.standing import StandingStack
from tests.harness.bench import CLEAN, Bench, leftovers, trainer_running
from tests.harness.waiting import until


class TestStop:
    def test_nothing_is_left_and_a_second_stop_finds_that_too(self, bench: Bench) -> None:
        bench.stack.start()
        assert leftovers(bench.stack.stop()) == CLEAN
        assert leftovers(bench.stack.stop()) == CLEAN
        exits = [event.service for event in bench.events if isinstance(event, ServiceExited)]
        assert sorted(exits) == ["engine-0", "etcd", "frontend", "sidecar-0"]

    def test_before_the_start_there_is_nothing_to_stop(self, bench: Bench) -> None:
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_an_engines_inner_process_goes_with_it(self, bench: Bench) -> None:
        bench.stack.start()
        core = bench.core()
        bench.stack.stop()
        row = read_row(core)
        assert row is None or row.ended

    def test_a_service_that_cannot_be_stopped_is_a_failure_and_hides_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.stack.start()
        frontend = bench.stack.processes["frontend"]
        with monkeypatch.context() as patched:
            patched.setattr(frontend, "stop", _refuse)
            left = bench.stack.stop()
        assert [one.service for one in left.survivors] == ["frontend"]
        assert set(left.ports) == set(frontend.spec.ports.values())
        [failure] = [event for event in bench.events if isinstance(event, Failure)]
        assert (failure.error.kind, failure.error.exit_code) == ("teardown", 50)
        exits = {event.service for event in bench.events if isinstance(event, ServiceExited)}
        assert exits == {"engine-0", "etcd", "sidecar-0"}

    def test_whoever_took_the_rendezvous_port_is_named_and_not_counted(self, bench: Bench) -> None:
        port = bench.context.config.ports["rendezvous"]
        with socket.create_server(("127.0.0.1", port)):
            left = bench.stack.stop()
        assert left.ports == ()
        notes = [event.text for event in bench.events if isinstance(event, Note)]
        assert any(f"pid {os.getpid()} on 127.0.0.1:{port}" in note for note in notes)

    def test_shared_memory_of_an_engine_that_was_killed_goes_with_it(self, bench: Bench) -> None:
        path = Path("/dev/shm") / f"smokestack-test-{bench.context.config.run_id}"
        code = f"import time; held = open({str(path)!r}, 'w'); time.sleep(600)"
        bench.stack.start()
        process = bench.stack.launch(trainer_running(bench, code))
        until("its file is there", path.exists)
        assert bench.stack.stop(urgent=lambda: True).files == ()
        assert process.poll() == -signal.SIGKILL
        assert not path.exists()

    def test_shared_memory_that_nobody_was_seen_with_is_named_and_not_counted(self, bench: Bench) -> None:
        path = Path("/dev/shm") / f"smokestack-test-{bench.context.config.run_id}"
        process = bench.stack.launch(trainer_running(bench, f"open({str(path)!r}, 'w').write('left')"))
        try:
            until("it has ended", lambda: process.poll() is not None)
            assert bench.stack.stop().files == ()
            assert any(str(path) in event.text for event in bench.events if isinstance(event, Note))
        finally:
            path.unlink()


class TestStanding:
    def test_a_later_command_finds_it_and_takes_it_down(self, bench: Bench, tmp_path: Path) -> None:
        bench.stack.start()
        bench.stack.describe().write()
        standing = StandingStack.load(tmp_path / "run")
        assert standing.urls["frontend"] == bench.context.url("frontend")
        assert standing.alive() == dict.fromkeys(("etcd", "engine-0", "frontend", "sidecar-0"), True)
        assert leftovers(standing.take_down()) == CLEAN
        assert not any(standing.alive().values())

    def test_a_run_without_one_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no stack was left running"):
            StandingStack.load(tmp_path)

    def test_a_damaged_state_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "stack.json").write_text('{"schema": 2}')
        with pytest.raises(UsageError, match=r"stack\.json"):
            StandingStack.load(tmp_path)


def _refuse(*_args: object, **_options: object) -> Stopped:
    raise PermissionError("may not be signalled")
