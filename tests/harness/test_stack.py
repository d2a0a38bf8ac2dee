"""A stack of tiny programs comes up in order, is watched, and is gone afterwards, whatever happened in between."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import httpx
import psutil
import pytest

from harness.clock import SteadyClock
from harness.config import Deadlines
from harness.errors import (
    DiscoveryError,
    InstallError,
    NotReadyError,
    ServiceDiedError,
    SmokestackError,
    TrainingError,
)
from harness.events import BaseEvent, ServiceExited, ServiceReady, ServiceStarted
from harness.events import Topology as TopologyEvent
from harness.evidence.exposure import exposed
from harness.process import Process
from harness.proctable import ProcessTable
from harness.services import exposed as exposed_service
from harness.services.context import TRAINER, ServiceContext
from harness.stack import Stack
from harness.vigil import AFTERMATH_S
from harness.watch import LAST_WORDS_S
from tests.harness.bench import CLEAN, Bench, leftovers, trainer_running, watch_until
from tests.harness.waiting import until


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
        bench = make_bench(engines=2)
        topology = bench.stack.start()
        engines = [bench.context.url(f"engine-{index}") for index in range(2)]
        assert [(w.admin_url, w.rank_offset) for w in topology.workers] == [(engines[0], 0), (engines[1], 1)]
        [event] = [event for event in bench.events if isinstance(event, TopologyEvent)]
        assert [worker.engine for worker in event.workers] == ["engine-0", "engine-1"]

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

    def test_whoever_took_the_place_of_a_killed_service_took_no_port_from_it(self, bench: Bench) -> None:
        listening: list[socket.socket] = []

        def replace(event: BaseEvent) -> None:
            if isinstance(event, ServiceStarted) and event.service == "frontend":
                psutil.Process(event.pid).kill()
                until("its end", lambda: psutil.Process(event.pid).status() == psutil.STATUS_ZOMBIE)
                listening.append(socket.create_server(("127.0.0.1", bench.context.config.ports["frontend"])))

        bench.stack = Stack(bench.context, clock=SteadyClock(), emit=replace)
        with pytest.raises(ServiceDiedError, match="frontend was replaced") as caught:
            bench.stack.start()
        listening.pop().close()
        assert f"pid {os.getpid()}" in str(caught.value)

    def test_a_strangers_engine_in_discovery_is_refused(self, bench: Bench) -> None:
        bench.tell("foreign-worker")
        with pytest.raises(DiscoveryError, match="did not start"):
            bench.stack.start()
        [event] = [event for event in bench.events if isinstance(event, TopologyEvent)]
        assert [worker.admin_url for worker in event.workers] == ["http://127.0.0.1:9"]
        assert leftovers(bench.stack.stop()) == CLEAN

    def test_ranks_that_never_come_end_at_the_deadline(self, make_bench: Callable[..., Bench]) -> None:
        bench = make_bench(engines=2, deadlines=Deadlines(discovery_s=0.3))
        bench.tell("hidden-worker")
        with pytest.raises(DiscoveryError, match=r"0\.3 s") as caught:
            bench.stack.start()
        assert "1 of 2 ranks" in str(caught.value)

    def test_an_engine_of_another_size_than_configured_is_named_at_once(self, make_bench: Callable[..., Bench]) -> None:
        bench = make_bench(engines=2)
        context = bench.context
        sizes = context.config.model_copy(update={"tensor_parallel": (1, 2)})
        bench.stack.context = ServiceContext(sizes, context.manifest, context.caller)
        with pytest.raises(DiscoveryError) as caught:
            bench.stack.start()
        assert caught.value.found == "engine-1 has world size 1, configured with 2"

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
        until("it listens", lambda: b"listening" in log.read_bytes())
        bench.stack.note_listening()
        process.stop()
        [told] = exposed(bench.stack.listening("end"), "127.0.0.1")
        assert told.startswith("exposed (pid ")
        assert "listens on 0.0.0.0:" in told
        assert exposed(before, "127.0.0.1") == []
        assert leftovers(bench.stack.stop()) == CLEAN


class TestLeases:
    """What etcd is asked when something ends: also before the stack is ready."""

    def test_one_that_is_lost_while_the_stack_starts_is_named(self, bench: Bench) -> None:
        bench.tell("lease-7")

        def lose_it(event: BaseEvent) -> None:
            if isinstance(event, ServiceReady) and event.service == "engine-0":
                (bench.context.config.tmp_dir / "lease-7").unlink()
                bench.tell("die-dynamo.vllm.sidecar")

        bench.stack = Stack(bench.context, clock=SteadyClock(), emit=lose_it)
        with pytest.raises(ServiceDiedError, match=r"sidecar-0 ended .*; lease lost: 1 of the 1 leases"):
            bench.stack.start()

    def test_one_that_came_with_the_last_service_is_known(self, bench: Bench) -> None:
        bench.tell("lease-7")
        bench.stack.start()
        assert bench.stack.leases.held == {"7"}
        (bench.context.config.tmp_dir / "lease-7").unlink()
        with pytest.raises(NotReadyError, match="no worker; lease lost"), bench.stack.leases.naming_loss():
            raise NotReadyError("no worker")

    def test_the_end_of_etcd_itself_is_named_as_such(self, bench: Bench) -> None:
        bench.tell("die-etcd")
        with pytest.raises(ServiceDiedError) as caught:
            bench.stack.start()
        assert caught.value.what == "etcd ended although it should run"


class TestWatch:
    @pytest.mark.parametrize("killed_s", [None, 0.0, AFTERMATH_S / 5])
    def test_the_end_of_a_process_is_named_rather_than_what_somebody_met_of_it(
        self, killed_s: float | None, bench: Bench
    ) -> None:
        """Also when it shows only after what it caused."""
        told: list[SmokestackError] = []

        def hear() -> None:
            if told:
                raise told[0]

        bench.stack = Stack(bench.context, clock=SteadyClock(), emit=bench.events.append, meanwhile=hear)
        bench.stack.start()
        core = psutil.Process(bench.core())
        death = threading.Timer(killed_s or 0.0, core.kill)
        if killed_s is not None:
            death.start()
        if killed_s == 0.0:
            until("its end", lambda: core.status() == psutil.STATUS_ZOMBIE)
        told.append(TrainingError("rollouts failed"))
        with pytest.raises(TrainingError if killed_s is None else ServiceDiedError):
            bench.stack.watch()
        if killed_s is not None:
            death.join()

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
        until("it has ended", lambda: process.poll() is not None)
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
        process = bench.stack.launch(trainer_running(bench, "pass"))
        bench.stack.may_end(TRAINER)
        until("it has ended", lambda: watched_end(bench.stack, process))
        bench.stack.watch()
        assert bench.events[-1] == ServiceExited(service=TRAINER, returncode=0, expected=True)

    def test_a_trainer_that_fails_is_heard_out_first(self, bench: Bench) -> None:
        process = bench.stack.launch(trainer_running(bench, "raise SystemExit(1)"))
        until("it has ended", lambda: watched_end(bench.stack, process))
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


def watched_end(stack: Stack, process: Process) -> bool:
    stack.watch()
    return process.poll() is not None


def _only_child(pid: int) -> int:
    [child] = psutil.Process(pid).children()
    return child.pid
