"""The programs that a run starts beside the engine: etcd, Dynamo's planes, the sidecar's dialect."""

from __future__ import annotations

import re

from scripts.doctor.registry import Check, Finding, fail, ok
from scripts.doctor.runtime_installed import Installed, reinstall, when_unchanged
from scripts.doctor.subject import Subject

_PLANES = {"discovery": "etcd", "request": "tcp", "event": "zmq"}
"""What the run plane starts services for; `harness` knows no other."""

_SILENT_ENGINES = ((0, 28), (0, 29))
"""vLLM releases whose gRPC says that the world size is zero."""

_WORLD_SIZE_FLAG = "--vllm-rl-world-size"


def _etcd(subject: Subject, _installed: Installed) -> Finding:
    required = "the environment's own etcd, which starts"
    program = subject.environment / "bin" / "etcd"
    if not subject.machine.exists(program):
        return fail(f"no {program}", required, reinstall(subject))
    answer = subject.ask(str(program), "--version")
    version = re.search(r"etcd Version: (\S+)", answer.output)
    if not answer.good or version is None:
        return fail(f"etcd --version: {answer.in_short}", required, reinstall(subject))
    return ok(f"etcd {version.group(1)}", required)


def _planes(subject: Subject) -> Finding:
    """Left out, Dynamo takes NATS for requests and events, and waits for a server that nobody starts."""
    required = ", ".join(f"{name} = {value}" for name, value in _PLANES.items())
    found = ", ".join(f"{name} = {subject.stack.planes.get(name, 'not set')}" for name in _PLANES)
    if {name: subject.stack.planes.get(name) for name in _PLANES} == _PLANES:
        return ok(found, required)
    name = subject.stack.name
    return fail(found, required, f"${{EDITOR:-vi}} stacks/{name}/stack.toml   # the table [planes]")


def _sidecar(subject: Subject, installed: Installed) -> Finding:
    """The install has asked every program for its flags: what it wrote down is read here, nothing is started."""
    required = f"a sidecar that knows the flags of the dialect {subject.stack.dialect}"
    asserted = [str(line) for line in installed.stamp.get("asserted") or ()]
    line = next((line for line in asserted if line.startswith("the sidecar knows ")), None)
    if line is None:
        return fail("the install did not ask the sidecar", required, reinstall(subject))
    vllm = installed.packages.get("vllm", "")
    release = tuple(int(part) for part in re.findall(r"\d+", vllm)[:2])
    if release in _SILENT_ENGINES and _WORLD_SIZE_FLAG not in line:
        return fail(
            f"vLLM {vllm} does not tell its world size, and the dialect does not pass {_WORLD_SIZE_FLAG}",
            f"vLLM 0.30 or newer, or a dialect with {_WORLD_SIZE_FLAG}",
            f"${{EDITOR:-vi}} stacks/{subject.stack.name}/stack.toml   # pin a newer vLLM",
        )
    return ok(f"{line} (vLLM {vllm})", required)


CHECKS = (
    Check(
        id="runtime.etcd",
        title="etcd",
        group="runtime",
        why="frontend and sidecars find each other through it; a run starts its own, before all others",
        symptom="`connection refused` from etcd's port when Dynamo starts",
        cause="no etcd, one that does not run on this machine, or Dynamo started before it answers",
        looks_at="bin/etcd of the stack's environment: `etcd --version`",
        fix="./noxw -s install -- --stack NAME --force",
        reference="https://github.com/ai-dynamo/dynamo/issues/1188",
        needed_for=("run",),
        look=when_unchanged(_etcd),
        rows=(23,),
    ),
    Check(
        id="runtime.planes",
        title="Dynamo's planes",
        group="runtime",
        why="with no plane set, Dynamo wants a NATS server with JetStream",
        symptom="`failed to connect to NATS`, or a JetStream error, although nobody asked for NATS",
        cause="the request or event plane was left at its default",
        looks_at="`[planes]` of the stack file",
        fix="${EDITOR:-vi} stacks/NAME/stack.toml   # [planes] discovery, request, event",
        reference="https://github.com/ai-dynamo/dynamo/issues/2577",
        needed_for=("run",),
        look=_planes,
        rows=(24,),
    ),
    Check(
        id="runtime.sidecar-flags",
        title="sidecar's flags",
        group="runtime",
        why="Dynamo's sidecar has changed its flags between releases, and older vLLM needs one more",
        symptom="the sidecar ends with `unexpected argument`, or discovery reports a world size of 0",
        cause="a dialect of another Dynamo release, or vLLM 0.28 or 0.29, which do not tell their world size over gRPC",
        looks_at="what the install asked the sidecar, and the installed vLLM's version",
        fix="${EDITOR:-vi} stacks/NAME/stack.toml   # dialect",
        reference="https://github.com/ai-dynamo/dynamo/pull/14840",
        needed_for=("run",),
        look=when_unchanged(_sidecar),
        rows=(26,),
    ),
)
