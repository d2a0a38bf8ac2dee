"""Checks on the stack: what was installed, which processes ran, whether they serve, and what they left behind."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from harness import events
from harness.evidence.check import Expectation, Findings, counted
from harness.evidence.policy import all_observed
from harness.evidence.timeline import Timeline, first_and_last

HASH_OF_NOTHING = hashlib.sha256(b"").hexdigest()
DISCOVERY = "discovery"
"""Kind of the failure of a run that discovery ended: no topology that could be pinned, or another one than the pinned.
"""

TRAINER = "trainer"
"""The one process of a run that is not part of the stack."""


def pins_installed(run: Timeline, want: Expectation) -> Findings:
    """`stack.pins-installed`: every package and binary of the environment is the pinned one, and there is no other."""
    findings = Findings(
        expected="every package version and binary hash as in the manifest, and no other package",
        proves="the environment has the pinned versions and binaries (its files were checked when it was installed)",
        means="what ran is not what was pinned",
    )
    for pins in run.require(events.Pins, findings):
        if not pins.expected or not pins.binaries:
            findings.missing.append("the manifest names no packages or no binaries")
        for name, version in pins.expected.items():
            installed = pins.found.get(name)
            if installed != version:
                findings.wrong.append(f"{name} {installed or 'is not installed'}, pinned {version}")
        findings.wrong += [
            f"{name} {version} is installed, and not pinned"
            for name, version in pins.found.items()
            if version is not None and name not in pins.expected
        ]
        for name, binary in pins.binaries.items():
            if binary.found is None:
                findings.wrong.append(f"binary {name} is not there")
            elif binary.found != binary.expected or binary.found == HASH_OF_NOTHING:
                findings.wrong.append(f"binary {name} has SHA-256 {binary.found}, pinned {binary.expected}")
        findings.seen = (
            f"{counted(len(pins.found), 'package')}, {counted(len(pins.binaries), 'binary', 'binaries')} as pinned"
        )
    return findings


def topology_discovered(run: Timeline, want: Expectation) -> Findings:
    """`discovery.topology`: the expected ranks, in gapless order, on distinct engines that all serve the model."""
    findings = Findings(
        expected=f"{counted(want.engines, 'engine')} serving {want.model}, world size {want.world_size}",
        proves="the frontend lists exactly the engines that were started, with ranks that fit the transfer group",
        means="the frontend does not list the engines that this run expects",
    )
    topologies = run.require(events.Topology, findings)
    if run.failure is not None and run.failure.kind == DISCOVERY:
        findings.wrong.append(f"{run.failure.what}: {run.failure.found}" if run.failure.found else run.failure.what)
    for topology in topologies:
        _judge_topology(topology, want, findings)
    if len({topology.fingerprint for topology in topologies}) > 1:
        findings.wrong.append("the topology was pinned twice, differently")
    return findings


def _judge_topology(topology: events.Topology, want: Expectation, findings: Findings) -> None:
    workers = topology.workers
    findings.seen = f"{counted(len(workers), 'engine')}, world size {topology.world_size}"
    total = sum(worker.world_size for worker in workers)
    for name, size in (("reported", topology.world_size), ("summed", total), ("asked", topology.expected_world_size)):
        if size != want.world_size:
            findings.wrong.append(f"{name} world size {size}")
    if len(workers) != want.engines:
        findings.wrong.append(counted(len(workers), "engine"))
    sizes = {worker.admin_url: worker.world_size for worker in workers}
    for engine in want.fleet:
        found = sizes.get(engine.admin_url)
        if found != engine.ranks:
            has = "is not listed" if found is None else f"has {counted(found, 'rank')}"
            findings.wrong.append(f"{engine.name} {has}, configured with {engine.ranks}")
    findings.wrong += [f"{want.named(w.admin_url)} serves {w.model}" for w in workers if w.model != want.model]
    for what, values in (
        ("instance", [f"{w.component}/{w.instance_id}" for w in workers]),
        ("admin URL", [w.admin_url for w in workers]),
        ("system URL", [w.system_url for w in workers]),
    ):
        if len(set(values)) != len(values):
            findings.wrong.append(f"two workers share one {what}")
    if workers and workers[0].rank_offset != 0:
        findings.wrong.append(f"the first engine's rank offset is {workers[0].rank_offset}")
    if any(after.rank_offset != before.rank_offset + before.world_size for before, after in pairwise(workers)):
        findings.wrong.append(f"rank offsets {[w.rank_offset for w in workers]} do not follow from the world sizes")
    if not topology.fingerprint:
        findings.missing.append("the topology has no fingerprint")


def same_processes(run: Timeline, want: Expectation) -> Findings:
    """`stack.same-processes`: the same pids with the same start times, and the same topology, before and after."""
    findings = Findings(
        expected="the same pids, start times and topology fingerprint at start and end",
        proves="no process was replaced, so the engines that were refitted are the engines that generated",
        means="a process was replaced or died: what was observed may not be what was refitted",
    )
    start, end = first_and_last(run.require(events.Processes, findings), "start", "end")
    findings.missing += [
        f"no process list at the {when}" for when, item in (("start", start), ("end", end)) if not item
    ]
    if start is not None:
        _judge_started(run, start, findings)
        findings.seen = f"{counted(len(start.processes), 'process', 'processes')}, none replaced"
    if start is not None and end is not None:
        _compare_processes(start, end, findings)
    return findings


def _judge_started(run: Timeline, start: events.Processes, findings: Findings) -> None:
    """The list at the start covers every service that was started, and agrees with the pinned topology."""
    started = {event.service: event.pid for event in run.of(events.ServiceStarted) if event.service != TRAINER}
    if not started:
        findings.missing.append("no service.started event")
    pids = {record.pid for record in start.processes}
    findings.missing += [
        f"{name} (pid {pid}) is not in the list at the start" for name, pid in started.items() if pid not in pids
    ]
    findings.wrong += [
        f"{event.service} exited with {event.returncode}"
        for event in run.of(events.ServiceExited)
        if event.service in started and not event.expected
    ]
    pinned = [topology.fingerprint for topology in run.of(events.Topology)]
    if pinned and start.fingerprint != pinned[-1]:
        findings.wrong.append("the fingerprint at the start is not that of the pinned topology")


def _compare_processes(start: events.Processes, end: events.Processes, findings: Findings) -> None:
    before = {(item.service, item.pid, item.start_time) for item in start.processes}
    after = {(item.service, item.pid, item.start_time) for item in end.processes}
    findings.wrong += [f"{service} pid {pid} is gone" for service, pid, _ in sorted(before - after)]
    findings.wrong += [f"{service} pid {pid} is new" for service, pid, _ in sorted(after - before)]
    if start.fingerprint != end.fingerprint:
        findings.wrong.append(f"topology fingerprint {start.fingerprint[:12]} became {end.fingerprint[:12]}")


def not_paused(run: Timeline, want: Expectation) -> Findings:
    """`engine.not-paused`: after the last refit every engine and sidecar says that it is not paused."""
    last = want.versions[-1]
    findings = Findings(
        expected=f"{counted(want.engines, 'engine')} not paused after refit {last}",
        proves="every engine was resumed",
        means="an engine was left paused: it answers health checks, and generations hang",
    )
    observed = [item for item in run.require(events.Observed, findings) if item.version == last]
    if not observed:
        findings.missing.append(f"no observation at version {last}")
        return findings
    refit = run.last_refit(last)
    if refit is not None and run.position(observed[-1]) < refit:
        findings.missing.append("the last observation was made before the last refit")
    engines = all_observed(observed[-1].engines, f"at version {last}", want, findings)
    # The perturbation after the last version resumes engines as well.
    restored = [
        engine
        for item in run.of(events.PerturbationObserved)
        for engine in all_observed(item.engines, f"with the {item.stage} weights", want, findings)
    ]
    for engine in (*engines, *restored):
        judge_paused(engine, want.named(engine.admin_url), findings)
    findings.seen = f"{counted(len(engines), 'engine')} not paused"
    return findings


def judge_paused(engine: events.EngineObservation, name: str, findings: Findings) -> None:
    """Neither the engine nor its sidecar says that it is paused, and the engine does say."""
    if engine.paused is None:
        findings.missing.append(f"{name} did not say whether it is paused")
    if engine.paused or engine.sidecar_paused:
        findings.wrong.append(f"{name} is paused" + ("" if engine.paused else " (by its sidecar)"))


def generation_after_update(run: Timeline, want: Expectation) -> Findings:
    """`generation.after-update`: a chat completion through the frontend, sent after the last refit, has an answer."""
    findings = Findings(
        expected="HTTP 200 with completion tokens, finish reason stop or length, after the last refit",
        proves="the whole path from frontend to engine serves after the last refit",
        means="the stack does not generate after the last refit",
    )
    generations = [item for item in run.require(events.Generation, findings) if item.when == "after"]
    if not generations:
        findings.missing.append("no generation after the last refit")
        return findings
    answer = generations[-1]
    refit = run.last_change(None if want.own_trainer else want.versions[-1])
    if refit is not None and run.position(answer) < refit:
        findings.missing.append("the generation was sent before the last refit")
    if answer.status != 200:
        findings.wrong.append(f"HTTP {answer.status}: {answer.text[:80]!r}")
    elif not answer.completion_tokens:
        findings.wrong.append("no completion tokens")
    elif answer.finish_reason not in {"stop", "length"}:
        findings.wrong.append(f"finish reason {answer.finish_reason}")
    findings.seen = f"{counted(answer.completion_tokens, 'token')} in {answer.seconds:.2f} s: {answer.text[:30]!r}"
    return findings


def teardown_clean(run: Timeline, want: Expectation) -> Findings:
    """`teardown.clean`: no process, port or temporary file of the run is left.

    The end of a run that failed is torn down as well, so that missing evidence is a failure even then, unless nothing
    was ever started.
    """
    findings = Findings(
        expected="no process, listening port or temporary file of this run",
        proves="the run left the machine as it found it",
        means="the run left something behind on this machine",
        seen="nothing left",
        always_due=True,
    )
    teardowns = run.require(events.Teardown, findings)
    for teardown in teardowns:
        findings.wrong += [f"pid {item.pid} ({item.service}) is alive" for item in teardown.survivors]
        findings.wrong += [f"port {port} is listening" for port in teardown.ports]
        findings.wrong += [f"{path} is left" for path in teardown.files]
    if teardowns:
        return findings
    if want.keep_up:
        findings.not_asked = "--keep-up leaves the stack running"
    elif run.failure is not None and not run.of(events.ServiceStarted):
        findings.not_asked = f"the run ended in {run.failure.kind}: nothing was started"
    return findings
