"""Services end phase by phase whatever one of them does; what is left is the run's own, and strangers are named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from harness.ending import Stopped
from harness.errors import TeardownError
from harness.proctable import ProcessId, read_row
from harness.survivors import ProcessTree
from harness.teardown import StopError, look_around, phase_of, stop_in_phases

ALL = ("etcd", "engine-0", "frontend", "sidecar-0", "trainer")

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


class Order:
    """Stops that note when they were called; some fail."""

    def __init__(self, *broken: str) -> None:
        self.called: list[str] = []
        self._broken = broken

    def stops(self) -> dict[str, Callable[[], Stopped]]:
        return {name: self._stop(name) for name in ALL}

    def _stop(self, name: str) -> Callable[[], Stopped]:
        def call() -> Stopped:
            self.called.append(name)
            if name in self._broken:
                raise PermissionError(f"{name} may not be signalled")
            return Stopped(name, 0.0, 0)

        return call


class TestPhases:
    def test_who_asks_goes_before_whoever_is_asked(self) -> None:
        order = Order()
        assert {one.service for one in stop_in_phases(order.stops())} == set(ALL)
        assert [phase_of(name) for name in order.called] == [0, 0, 1, 1, 2]

    def test_a_stop_that_fails_keeps_no_later_phase_from_ending(self) -> None:
        order = Order("sidecar-0", "engine-0")
        with pytest.raises(StopError) as caught:
            stop_in_phases(order.stops())
        assert set(order.called) == set(ALL)
        assert {one.service for one in caught.value.ended} == {"etcd", "frontend", "trainer"}

    def test_every_failure_is_told_and_the_status_is_that_of_a_teardown(self) -> None:
        with pytest.raises(TeardownError) as caught:
            stop_in_phases(Order("sidecar-0", "engine-0").stops())
        assert "sidecar-0: PermissionError" in str(caught.value)
        assert "engine-0: PermissionError" in str(caught.value)
        assert caught.value.exit_code == 50


class TestLookAround:
    def test_a_stranger_on_a_freed_port_is_named_and_not_counted(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            left = look_around("no-such-run", [], [port], seconds=0.0)
        assert left.ports == ()
        [stranger] = left.strangers
        assert f"pid {os.getpid()} on 127.0.0.1:{port}" in stranger

    def test_a_process_of_the_run_that_still_listens_is_counted(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LISTEN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            left = look_around("some-run", [_tree(process.pid)], [port], seconds=0.0)
        finally:
            process.communicate()
        assert left.ports == (port,)
        assert [one.pid for one in left.survivors] == [process.pid]
        assert left.strangers == ()

    def test_a_younger_listener_that_cannot_be_traced_to_the_run_is_counted(self) -> None:
        began = _tree(os.getpid())
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            older = ProcessTree("some", "some-run", leader=ProcessId(0, began.leader.start_time), session=0)
            left = look_around("some-run", [older], [port], seconds=0.0)
        finally:
            process.communicate()
        assert (left.ports, left.survivors, left.strangers) == ((port,), (), ())

    def test_other_ports_are_nobodys_business(self) -> None:
        with socket.create_server(("127.0.0.1", 0)):
            left = look_around("no-such-run", [], [1], seconds=0.0)
        assert (left.ports, left.strangers) == ((), ())


def _tree(pid: int) -> ProcessTree:
    row = read_row(pid)
    assert row is not None
    return ProcessTree("engine-0", "some-run", ProcessId(pid, row.id.start_time), pid)
