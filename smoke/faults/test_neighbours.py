"""F03, F04, F12, F13, F14: what others do to the stack of a run, by the engine's own routes and by signals."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import httpx
import pytest

from harness.clock import Deadline, SteadyClock
from harness.discovery import DiscoveryProbe, complete_topology, require_same
from harness.errors import DiscoveryError
from harness.topology import Expectation, Topology
from smoke.faults.outcome import complete, ended, topology_of
from smoke.faults.record import Injection, Record
from smoke.faults.stage import PHASES, STEPS, Phase, Replica, Stage, has_ended, kill_tree
from smoke.runner import Outcome, wait_until

pytestmark = pytest.mark.faults
LEASE_S = 10.0
"""How long the records of frontend and sidecar outlive their last word to etcd."""


def post_once_it_answers(run: Stage, path: str) -> None:
    """POST to the engine as soon as it answers at all: the run has not got hold of it yet."""

    def answered() -> bool:
        try:
            answer = run.ask("POST", "engine-0", path)
            return answer.is_success or "already active" in answer.text
        except httpx.TransportError:
            return False

    run.core()
    wait_until(answered, f"POST {path}", 120)


def test_f03_an_abandoned_weight_update_is_found_before_step_1(stage: Callable[..., Stage], record: Record) -> None:
    run = stage("--steps", "1")
    post_once_it_answers(run, "/start_weight_update")
    injection = record.begin("F03", "update opened before the run's first")
    outcome = ended(
        run, injection, within=20, status=30, kinds={"not-ready"}, says="weight update open.*is already active"
    )
    assert not [event for event in outcome.events if event["kind"] == "step"]


def test_f04_a_paused_engine_is_found_at_attach(stage: Callable[..., Stage], record: Record) -> None:
    run = stage("--steps", "1")
    post_once_it_answers(run, "/pause?mode=keep")
    injection = record.begin("F04", "paused before the run got hold of it")
    ended(run, injection, within=20, status=30, kinds={"not-ready"}, says="is paused before anybody.*/resume")


def test_f04_generations_of_an_engine_paused_later_are_bounded(stage: Callable[..., Stage], record: Record) -> None:
    run = stage("--steps", str(STEPS), "--step-timeout", "8")
    run.reach("rollouts")
    injection = record.begin("F04", "paused with rollouts in flight")
    assert run.ask("POST", "engine-0", "/pause?mode=keep").status_code == 200
    ended(run, injection, within=20, status=40, kinds={"training"}, says="rollouts did not end in time.*is_paused")


LONGEST_STEP_S, SHORTEST_STEP_S = 3.0, 0.4
"""Between these lies a step with all that belongs to it, on a busy machine and on an idle one."""


@pytest.mark.parametrize(("seconds", "phase"), [(5, "training"), (15, "training"), (30, "training"), (15, "starting")])
def test_f12_etcd_that_stood_still_is_survived_or_named(
    seconds: int, phase: str, stage: Callable[..., Stage], record: Record
) -> None:
    """Beside the start no phase differs: a step, with its rollouts and its refit, is shorter than any of the stops."""
    steps = 4 if phase == "starting" else int(seconds / SHORTEST_STEP_S)
    run = stage("--steps", str(steps))
    if phase == "starting":
        run.wait_for("service.ready", service="frontend")
    else:
        run.wait_for("observed", version=0)
    injection = record.begin("F12", f"etcd stopped for {seconds} s, {phase}")
    began = time.monotonic()
    noticed = stop_etcd(run, seconds)
    assert noticed is not None or run.still_running(), "etcd stood still for as long as it was meant to"
    wait_until(lambda: bool(run.seen("failure") or not run.still_running()), "the outcome", LONGEST_STEP_S * steps + 60)
    if run.seen("failure"):
        assert seconds > LEASE_S, "a silence that no lease ends with is survived"
        noticed = noticed or time.monotonic() - began
        named_as_lost_lease(run, injection, seconds, phase, noticed)
        return
    outcome = run.run.wait()
    assert outcome.returncode == 0, outcome.explain()
    assert outcome.verdict["policy_versions"] == list(range(steps + 1))
    complete(outcome)
    injection.recovered, injection.outcome = True, "recovered: pass"


def stop_etcd(run: Stage, seconds: float) -> float | None:
    """Let it stand still for so long, or until the run has noticed: after how many seconds, if it has."""
    etcd, began = run.leader("etcd"), time.monotonic()
    etcd.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: bool(run.seen("failure")) or time.monotonic() - began >= seconds, "the time", seconds + 5)
        return time.monotonic() - began if run.seen("failure") else None
    finally:
        if etcd.is_running():
            etcd.send_signal(signal.SIGCONT)


def named_as_lost_lease(run: Stage, injection: Injection, seconds: float, phase: str, noticed: float) -> None:
    """Who first shows that a lease is gone is chance: its owner, which ends, or discovery, which lists nobody."""
    status = run.seen("failure")[0]["error"]["exit_code"]
    assert status in ({30, 31} if phase == "starting" else {31, 40})
    kinds = {"service-died", "discovery", "not-ready", "training", "refit", "observation", "http"}
    says = "lease lost|no lease can be renewed"
    ended(run, injection, within=seconds + 35, status=status, kinds=kinds, says=says, seconds=noticed)


def pinned(run: Stage) -> tuple[Topology, str]:
    """The topology that the run works with, and where it asks for it."""
    return topology_of(run.seen("topology")[-1]), run.url("discovery") + "/v1/rl/workers"


def hold_harness(run: Stage) -> list[int]:
    """Let nobody look for a while. The trainer, which waits for the harness, soon leaves the engine idle.

    Returns the versions that were observed until then.
    """
    run.wait_for("refit", version=1)
    run.run.send(signal.SIGSTOP)
    idle_since = [time.monotonic()]

    def idle() -> bool:
        if run.requests_open() or run.paused():
            idle_since[0] = time.monotonic()
        return time.monotonic() - idle_since[0] > 1.0

    wait_until(idle, "an idle engine", 60)
    return [event["version"] for event in run.seen("observed") if event["version"] >= 0]


def named_as_replaced(run: Stage, injection: Injection, service: str, replica: subprocess.Popen[bytes]) -> Outcome:
    """Let the harness look again: the run must end, the replica with it, because another process is in its place."""
    run.run.send(signal.SIGCONT)
    says = f"{service} was replaced.*pid {replica.pid}"
    outcome = ended(run, injection, within=6, status=40, kinds={"service-died"}, says=says)
    replica.wait(20)
    return outcome


def test_f13_a_restarted_sidecars_dead_record_is_not_used(stage: Callable[..., Stage], record: Record) -> None:
    run = stage("--steps", str(STEPS))
    hold_harness(run)
    before, url = pinned(run)
    sidecar = run.leader("sidecar-0")
    replica = Replica.of(sidecar)
    injection = record.begin("F13", "sidecar killed and restarted at once while nobody looked")
    sidecar.kill()
    wait_until(lambda: has_ended(sidecar), "its end", 10)
    child = replica.start(run.run.run_dir / "logs" / "sidecar-again.log")
    probe = DiscoveryProbe(url, Expectation(before.workers[0].model, before.world_size))
    both = _both_records(run, url)
    assert both >= 2, "the old and the new record were there side by side"
    with pytest.raises(DiscoveryError):
        _look(probe, before, 1.0)
    wait_until(lambda: _names_change(probe, before), "the topology change to be named", 60)
    named_as_replaced(run, injection, "sidecar-0", child)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("fault", "service"), [("F13", "sidecar-0"), ("F14", "engine-0")])
def test_a_service_killed_and_restarted_under_the_eyes_of_the_run_is_named(
    fault: str, service: str, phase: Phase, stage: Callable[..., Stage], record: Record
) -> None:
    run = stage("--steps", str(STEPS))
    if (service, phase) == ("sidecar-0", "starting"):
        run.wait_for("service.started", service=service)
    else:
        run.reach(phase)
    leader = run.leader(service)
    replica = Replica.of(leader)
    injection = record.begin(fault, f"{service.removesuffix('-0')} killed and restarted at once, {phase}")
    began = time.monotonic()
    kill_tree(leader)
    wait_until(lambda: has_ended(leader), "its end", 10)
    child = replica.start(run.run.run_dir / "logs" / f"{service}-again.log")
    run.failure_seen(6)
    says = rf"{service} (?:was replaced|ended although it should run|lost a process of its own).*pid {leader.pid}\b"
    status, seconds = 30 if phase == "starting" else 40, time.monotonic() - began
    ended(run, injection, within=6, status=status, kinds={"service-died"}, says=says, seconds=seconds)
    assert child.wait(20) in {0, -signal.SIGTERM, -signal.SIGKILL}, "the run has ended the new one, not it itself"


def _both_records(run: Stage, url: str) -> int:
    most = 0

    def both() -> bool:
        nonlocal most
        answer = httpx.get(url, trust_env=False, timeout=10)
        most = max(most, len({w["instance_id"] for w in answer.json()["workers"]}) if answer.is_success else 0)
        return most >= 2

    wait_until(both, "two records", 15)
    return most


def _look(probe: DiscoveryProbe, before: Topology, seconds: float) -> None:
    """As the run looks before each refit."""
    clock = SteadyClock()
    found = complete_topology(probe, deadline=Deadline.after(clock, seconds), clock=clock, alive=lambda: None)
    require_same(before, found, probe.url)


def _names_change(probe: DiscoveryProbe, before: Topology) -> bool:
    try:
        _look(probe, before, 1.0)
    except DiscoveryError as error:
        return "gone: backend/" in str(error) and "new: backend/" in str(error)
    return False


def test_f14_an_engine_restarted_behind_its_sidecar_is_a_replaced_worker(
    stage: Callable[..., Stage], record: Record
) -> None:
    run = stage("--steps", str(STEPS))
    versions = hold_harness(run)
    before, url = pinned(run)
    engine = run.leader("engine-0")
    replica = Replica.of(engine)
    injection = record.begin("F14", "engine killed and restarted while nobody looked")
    kill_tree(engine)
    child = replica.start(run.run.run_dir / "logs" / "engine-again.log")

    def serves_again() -> bool:
        try:
            return bool(run.ask("GET", "engine-0", "/weight_info").json()["weight_version"] == "default")
        except httpx.TransportError:
            return False

    wait_until(serves_again, "the new engine", 180)
    _look(DiscoveryProbe(url, Expectation("tiny", 1)), before, 10.0)
    outcome = named_as_replaced(run, injection, "engine-0", child)
    assert outcome.verdict["policy_versions"] == versions, "the base policy was not taken for a trained one"
