"""A stack of tiny programs comes up in order, is watched, and is gone afterwards, whatever happened in between."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from harness.clock import SteadyClock
from harness.config import Deadlines
from harness.ending import Stopped
from harness.errors import DiscoveryError, InstallError, NotReadyError, ServiceDiedError, UsageError
from harness.events import BaseEvent, Failure, Note, ServiceExited, ServiceReady, ServiceStarted
from harness.events import Topology as TopologyEvent
from harness.evidence.exposure import exposed
from harness.ports import PortRoom
from harness.proctable import ProcessTable, read_row
from harness.services import exposed as exposed_service
from harness.services.context import TRAINER, ServiceContext
from harness.services.spec import ServiceSpec
from harness.stack import Stack
from harness.standing import StandingStack
from harness.teardown import Leftovers
from harness.watch import LAST_WORDS_S
from tests.harness import fakes

NAMES = ("etcd", "etcd-peer", "frontend", "discovery", "rendezvous")
CLEAN = ((), ())


class Bench:
    """A stack of fakes in a folder, and what it told."""

    def __init__(self, root: Path, engines: int = 1, deadlines: Deadlines | None = None) -> None:
        room = PortRoom()
        names = [*NAMES]
        for index in range(engines):
            names += [f"engine-{index}", f"engine-{index}-grpc", f"sidecar-{index}"]
        self.leases = {name: room.free() for name in names}
        fakes.make_environment(root / ".venv-cpu")
        changes = {} if deadlines is None else {"deadlines": deadlines}
        ports = {name: lease.port for name, lease in self.leases.items()}
        self.context: ServiceContext = fakes.context(root, ports=ports, engines=engines, **changes)
        self.events: list[BaseEvent] = []
        self.stack = Stack(self.context, clock=SteadyClock(), emit=self.events.append)

    def tell(self, file: str) -> None:
        """Leave a file for the fake programs to find."""
        (self.context.config.tmp_dir / file).touch()

    def core(self) -> int:
        """Pid of the first engine's inner process."""
        return int((self.context.config.tmp_dir / f"core-{self.context.config.ports['engine-0']}").read_text())

    def started(self) -> list[str]:
        return [event.service for event in self.events if isinstance(event, ServiceStarted)]

    def close(self) -> None:
        self.stack.stop(urgent=lambda: True)
        for lease in self.leases.values():
            lease.release()


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: object) -> Bench:
        made.append(Bench(tmp_path, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


def leftovers(left: Leftovers) -> tuple[object, object]:
    return (left.survivors, left.ports)


def watch_until(stack: Stack, error: type[Exception], seconds: float = 5.0) -> pytest.ExceptionInfo[Exception]:
    """Call `watch` until it raises; within `seconds`, or the test fails."""
    with pytest.raises(error) as caught:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stack.watch()
    return caught


class TestStart:
    def test_etcd_and_engine_start_at_once_and_the_sidecar_last(self, bench: Bench) -> None:
        bench.stack.start()
        assert bench.started() == ["etcd", "engine-0", "frontend", "sidecar-0"]
        ready = [event.service for event in bench.events if isinstance(event, ServiceReady)]
        assert sorted(ready) == ["engine-0", "etcd", "frontend", "sidecar-0"]
        assert ready[-1] == "sidecar-0"

    def test_the_pinned_topology_is_recorded_and_is_our_own_engine(self, bench: Bench) -> None:
        topology = bench.stack.start()
        [event] = [event for event in bench.events if isinstance(event, TopologyEvent)]
        assert event.fingerprint == topology.fingerprint == bench.stack.topology.fingerprint
        assert [w.admin_url for w in topology.workers] == [bench.context.url("engine-0")]

    def test_every_engine_gets_a_sidecar_and_its_own_ranks(self, make_bench: Callable[..., Bench]) -> None:
        topology = make_bench(engines=2).stack.start()
        assert sorted(w.rank_offset for w in topology.workers) == [0, 1]

    def test_a_service_that_ends_is_named_with_its_log(self, bench: Bench) -> None:
        bench.tell("die-vllm-rs")
        with pytest.raises(ServiceDiedError, match="engine-0") as caught:
            bench.stack.start()
        assert caught.value.log == bench.context.log("engine-0")
        assert "told to end" in bench.context.log("engine-0").read_text()
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_a_program_that_is_not_installed_is_named(self, bench: Bench) -> None:
        (bench.context.config.environment / "bin" / "vllm-rs").unlink()
        with pytest.raises(InstallError, match="engine-0"):
            bench.stack.start()
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_whoever_took_a_port_is_named(self, bench: Bench) -> None:
        with socket.create_server(("127.0.0.1", bench.context.config.ports["etcd"])):
            with pytest.raises(ServiceDiedError, match="another program listens") as caught:
                bench.stack.start()
            assert f"pid {os.getpid()}" in str(caught.value)
            bench.stack.stop()

    def test_a_strangers_engine_in_discovery_is_refused(self, bench: Bench) -> None:
        bench.tell("foreign-worker")
        with pytest.raises(DiscoveryError, match="did not start"):
            bench.stack.start()
        [event] = [event for event in bench.events if isinstance(event, TopologyEvent)]
        assert [worker.admin_url for worker in event.workers] == ["http://127.0.0.1:9"]
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_ranks_that_never_come_end_at_the_deadline(self, make_bench: Callable[..., Bench]) -> None:
        bench = make_bench(deadlines=Deadlines(discovery_s=0.3))
        context = bench.context
        two = context.config.model_copy(update={"tensor_parallel": 2})
        bench.stack.context = ServiceContext(two, context.manifest, context.caller)
        with pytest.raises(DiscoveryError, match=r"0\.3 s") as caught:
            bench.stack.start()
        assert "1 of 2 ranks" in str(caught.value)

    def test_a_service_that_never_answers_ends_at_its_deadline(self, make_bench: Callable[..., Bench]) -> None:
        bench = make_bench(deadlines=Deadlines(etcd_s=0.2))
        silent = bench.context.config.environment / "bin" / "etcd"
        silent.write_text("#!/bin/sh\nexec sleep 60\n")
        with pytest.raises(NotReadyError, match="etcd"):
            bench.stack.start()
        assert leftovers(bench.stack.stop()) == CLEAN


class TestExposure:
    def test_every_service_is_listed_with_its_ports_on_loopback(self, bench: Bench) -> None:
        bench.stack.start()
        listing = bench.stack.listening("start")
        assert {one.service for one in listing.sockets} >= {"etcd", "engine-0", "frontend", "sidecar-0"}
        ports = {name: lease.port for name, lease in bench.leases.items() if name not in ("etcd-peer", "rendezvous")}
        assert set(ports.values()) <= {one.port for one in listing.sockets}
        assert exposed(listing, "127.0.0.1") == []

    def test_a_listener_that_appears_later_in_a_session_of_its_own_is_found(self, bench: Bench) -> None:
        bench.stack.start()
        before = bench.stack.listening("start")
        process = bench.stack.launch(exposed_service.spec(bench.context))
        log = bench.context.log("exposed")
        end = time.monotonic() + 5
        while b"listening" not in log.read_bytes() and time.monotonic() < end:
            bench.stack.watch()
        bench.stack.note_listening()
        process.stop()
        [told] = exposed(bench.stack.listening("end"), "127.0.0.1")
        assert told.startswith("exposed (pid ")
        assert "listens on 0.0.0.0:" in told
        assert exposed(before, "127.0.0.1") == []
        assert leftovers(bench.stack.stop()) == CLEAN


class TestWatch:
    def test_a_healthy_stack_passes(self, bench: Bench) -> None:
        bench.stack.start()
        bench.stack.watch()
        bench.stack.require_same_topology()

    @pytest.mark.parametrize("service", ["etcd", "frontend", "sidecar-0", "engine-0"])
    def test_a_killed_service_is_noticed(self, bench: Bench, service: str) -> None:
        bench.stack.start()
        os.kill(bench.stack.processes[service].pid, signal.SIGKILL)
        assert service in str(watch_until(bench.stack, ServiceDiedError).value)
        exits = [event for event in bench.events if isinstance(event, ServiceExited)]
        assert [(one.service, one.returncode, one.expected) for one in exits] == [(service, -signal.SIGKILL, False)]

    @pytest.mark.parametrize(("number", "word"), [(signal.SIGKILL, "ended"), (signal.SIGSTOP, "stopped")])
    def test_an_engines_inner_process_is_missed_while_its_leader_is_well(
        self, bench: Bench, number: signal.Signals, word: str
    ) -> None:
        bench.stack.start()
        os.kill(bench.core(), number)
        caught = watch_until(bench.stack, ServiceDiedError)
        assert word in str(caught.value)
        assert bench.stack.processes["engine-0"].alive()
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_an_engine_that_is_stopped_while_it_starts_is_not_waited_for(self, bench: Bench) -> None:
        slow = bench.context.config.environment / "bin" / "vllm-rs"
        slow.write_text("#!/bin/sh\nsleep 60\n")
        seen = threading.Timer(0.3, lambda: os.kill(_only_child(bench.stack.processes["engine-0"].pid), signal.SIGSTOP))
        seen.start()
        with pytest.raises(ServiceDiedError, match="stopped"):
            bench.stack.start()
        seen.join()
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_etcd_may_stand_still_for_a_while(self, bench: Bench) -> None:
        bench.stack.start()
        os.kill(bench.stack.processes["etcd"].pid, signal.SIGSTOP)
        bench.stack.watch()
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_whoever_took_the_place_of_a_service_is_named(self, bench: Bench) -> None:
        bench.stack.start()
        process = bench.stack.processes["sidecar-0"]
        [port] = process.spec.ports.values()
        os.kill(process.pid, signal.SIGKILL)
        while process.poll() is None:
            time.sleep(0.005)
        with socket.create_server(("127.0.0.1", port)):
            caught = watch_until(bench.stack, ServiceDiedError)
        assert "sidecar-0 was replaced" in str(caught.value)
        assert "SIGKILL" in str(caught.value)
        assert f"pid {os.getpid()} on 127.0.0.1:{port}" in str(caught.value)

    def test_one_look_reads_the_process_table_once_for_all(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.stack.start()
        read, readings = ProcessTable.read, []
        monkeypatch.setattr(ProcessTable, "read", lambda: readings.append(1) or read())
        bench.stack.watch()
        assert len(readings) == 1

    def test_a_trainer_may_end_well_once_it_is_done(self, bench: Bench) -> None:
        process = bench.stack.launch(_trainer(bench, "pass"))
        bench.stack.may_end(TRAINER)
        while process.poll() is None:
            bench.stack.watch()
        bench.stack.watch()
        assert bench.events[-1] == ServiceExited(service=TRAINER, returncode=0, expected=True)

    def test_a_trainer_that_fails_is_heard_out_first(self, bench: Bench) -> None:
        process = bench.stack.launch(_trainer(bench, "raise SystemExit(1)"))
        while process.poll() is None:
            bench.stack.watch()
        began = time.monotonic()
        watch_until(bench.stack, ServiceDiedError)
        assert time.monotonic() - began >= LAST_WORDS_S * 0.9


class TestIdentities:
    def test_they_stay_the_same_while_nothing_happens(self, bench: Bench) -> None:
        bench.stack.start()
        start, end = bench.stack.identities("start"), bench.stack.identities("end")
        assert start.processes == end.processes
        assert start.fingerprint == bench.stack.topology.fingerprint
        assert {one.service for one in start.processes} == {"etcd", "engine-0", "frontend", "sidecar-0"}
        assert bench.core() in {one.pid for one in start.processes}

    def test_a_lost_inner_process_is_missing_at_the_end(self, bench: Bench) -> None:
        bench.stack.start()
        start = bench.stack.identities("start")
        os.kill(bench.core(), signal.SIGKILL)
        watch_until(bench.stack, ServiceDiedError)
        end = bench.stack.identities("end")
        assert {one.pid for one in start.processes} - {one.pid for one in end.processes} == {bench.core()}

    def test_an_additional_inner_process_shows_at_the_end(self, bench: Bench) -> None:
        bench.stack.start()
        start = bench.stack.identities("start")
        added = int(httpx.get(bench.context.url("engine-0") + "/spawn", trust_env=False).text)
        end = bench.stack.identities("end")
        assert {one.pid for one in end.processes} - {one.pid for one in start.processes} == {added}

    def test_the_fingerprint_at_the_end_is_that_of_a_new_question(self, bench: Bench) -> None:
        bench.stack.start()
        start = bench.stack.identities("start")
        bench.tell("replaced-worker")
        end = bench.stack.identities("end")
        assert start.fingerprint == bench.stack.topology.fingerprint != end.fingerprint
        with pytest.raises(DiscoveryError, match="topology changed"):
            bench.stack.require_same_topology()

    def test_discovery_that_is_busy_for_a_while_is_asked_again(self, bench: Bench) -> None:
        bench.stack.start()
        bench.tell("busy-discovery")
        answers_again = threading.Timer(0.3, (bench.context.config.tmp_dir / "busy-discovery").unlink)
        answers_again.start()
        bench.stack.require_same_topology()
        answers_again.join()


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
        process = bench.stack.launch(_trainer(bench, code))
        while not path.exists():
            time.sleep(0.01)
        assert bench.stack.stop(urgent=lambda: True).files == ()
        assert process.poll() == -signal.SIGKILL
        assert not path.exists()

    def test_shared_memory_that_nobody_was_seen_with_is_named_and_not_counted(self, bench: Bench) -> None:
        path = Path("/dev/shm") / f"smokestack-test-{bench.context.config.run_id}"
        process = bench.stack.launch(_trainer(bench, f"open({str(path)!r}, 'w').write('left')"))
        try:
            while process.poll() is None:
                time.sleep(0.01)
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


def _only_child(pid: int) -> int:
    [child] = psutil.Process(pid).children()
    return child.pid


def _refuse(*_args: object, **_options: object) -> Stopped:
    raise PermissionError("may not be signalled")


def _trainer(bench: Bench, code: str) -> ServiceSpec:
    context = bench.context
    return ServiceSpec(
        name=TRAINER,
        argv=(sys.executable, "-I", "-S", "-c", code),
        env={},
        cwd=context.config.tmp_dir,
        log=context.log(TRAINER),
    )
