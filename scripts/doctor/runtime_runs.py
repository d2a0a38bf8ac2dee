"""Stacks of this project that are up: left on purpose, at work now, or left behind by a harness that was killed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.doctor.json_objects import parsed
from scripts.doctor.machine import Machine
from scripts.doctor.registry import Check, Finding, ok, skip, warn
from scripts.doctor.runtime_sockets import listeners, sockets_of
from scripts.doctor.subject import Subject

STATE_FILE = "stack.json"
"""`harness.standing` writes it into the folder of a run while its stack is up."""

_START_TIME = 19
"""Position of field 22 in /proc/PID/stat, counted behind the name; see proc_pid_stat(5)."""


@dataclass(frozen=True)
class Run:
    """A run whose stack has living processes: service -> pids. `owned` means that a living command will end it."""

    folder: Path
    stack: str
    services: dict[str, tuple[int, ...]]
    owned: bool

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(pid for pids in self.services.values() for pid in pids)


def living(subject: Subject) -> tuple[Run, ...]:
    """The runs below `runs/` with at least one living process, oldest first."""
    runs = subject.root / "runs"
    boot = (subject.machine.read_text("/proc/sys/kernel/random/boot_id") or "").strip()
    found = []
    for name in subject.machine.entries(runs) or ():
        if subject.machine.link(runs / name) is not None:
            continue
        state = parsed(subject.machine.read_text(runs / name / STATE_FILE))
        # After a restart of the machine the pids of an old file are somebody else's.
        if state is None or state.get("boot_id") != boot:
            continue
        run = _run(subject.machine, runs / name, state)
        if run.pids:
            found.append(run)
    return tuple(found)


def _run(machine: Machine, folder: Path, state: dict[str, Any]) -> Run:
    services = {}
    for service in state.get("services") or ():
        pids = tuple(pid for pid, start in _processes(service) if _lives(machine, pid, start))
        if pids:
            services[str(service.get("service"))] = pids
    owner = state.get("owner") or {}
    owned = bool(owner) and _lives(machine, owner.get("pid"), owner.get("start_time"))
    return Run(folder, str(state.get("stack")), services, owned)


def _processes(service: dict[str, Any]) -> Iterator[tuple[int, int]]:
    yield service.get("pid", 0), service.get("start_time", 0)
    for pid, start in service.get("members") or ():
        if pid != service.get("pid"):
            yield pid, start


def _lives(machine: Machine, pid: object, start_time: object) -> bool:
    """Whether this very process runs: a pid alone may be another's by now."""
    fields = (machine.read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return len(fields) > _START_TIME and fields[0] not in "ZX" and fields[_START_TIME] == str(start_time)


def _leftovers(subject: Subject) -> Finding:
    required = "no stack of an earlier run is up"
    runs = living(subject)
    left = [run for run in runs if not run.owned]
    if left:
        listed = "; ".join(f"{run.folder.name} ({', '.join(sorted(run.services))})" for run in left)
        return warn(f"still up: {listed}", required, _down(subject, left))
    if runs:
        return ok(f"at work now, and ended by itself: {', '.join(run.folder.name for run in runs)}", required)
    return ok("none is up", required)


def _down(subject: Subject, runs: list[Run]) -> str:
    if len(runs) > 1:
        return "./noxw -s down -- --all-runs"
    return f"./noxw -s down -- --run-dir {shlex.quote(str(runs[0].folder.relative_to(subject.root)))}"


def _admin(subject: Subject) -> Finding:
    """Routes that load weights and pause engines have no password of their own, so that only loopback will do."""
    required = "services of a run listen on loopback only"
    runs = living(subject)
    if not runs:
        return skip("no stack is up: a run binds to 127.0.0.1", required)
    open_to_all = [listener for listener in listeners(subject.machine) if not listener.loopback]
    for run in runs:
        for service, pids in sorted(run.services.items()):
            inodes = sockets_of(subject.machine, pids)
            seen = [listener for listener in open_to_all if listener.inode in inodes]
            if seen:
                listed = ", ".join(f"{each.address}:{each.port}" for each in seen)
                return warn(f"{service} of {run.folder.name} listens on {listed}", required, _down(subject, [run]))
    return ok(f"all services of {', '.join(run.folder.name for run in runs)} do", required)


CHECKS = (
    Check(
        id="runtime.earlier-runs",
        title="stacks of earlier runs",
        group="runtime",
        why="a stack that is still up holds memory, ports and, with GPUs, the GPUs' memory",
        symptom="`Address already in use`, or too little free memory for the next engine",
        cause="it was kept up on purpose, or its harness was killed: an engine survives the death of its server",
        looks_at="runs/*/stack.json: the processes in them, by pid and start time",
        fix="./noxw -s down",
        reference="https://github.com/vllm-project/vllm/issues/55510",
        needed_for=("run",),
        look=_leftovers,
        rows=(28,),
    ),
    Check(
        id="runtime.admin-routes",
        title="admin routes on loopback",
        group="runtime",
        why="the routes that pause an engine and load weights ask for no password, even with an API key set",
        symptom="none: whoever reaches the port can replace the weights",
        cause="a service that listens on every address of the machine",
        looks_at="/proc/net/tcp and tcp6, for the processes of stacks that are up",
        fix="./noxw -s down   # then up again, without --host",
        reference="https://docs.vllm.ai/en/latest/usage/security/",
        needed_for=("run",),
        look=_admin,
    ),
)
