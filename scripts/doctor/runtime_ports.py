"""TCP ports: those that were asked for, those that people expect the stack on, and the kernel's own range."""

from __future__ import annotations

from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.runtime_sockets import holder
from scripts.doctor.subject import Subject

FIRST, LAST = 20_000, 29_999
"""Where a run chooses its ports; `harness.ports` has the same numbers."""

CUSTOMARY = {
    "etcd": 2379,
    "etcd-peer": 2380,
    "engine-0": 8002,
    "engine-0-grpc": 50051,
    "frontend": 8000,
    "discovery": 8001,
}
"""The ports of a stack that is started by hand, by the names that `--port` has for them."""

_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
_UNPRIVILEGED = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_USED_TO = (32768, 60999)
"""The kernel's default range."""


def _asked_for(subject: Subject) -> Finding:
    required = "every port that was asked for is free"
    ports = subject.options.ports
    if not ports:
        return skip("none was asked for: a run chooses free ones", required)
    for name, port in sorted(ports.items()):
        if port < _first_unprivileged(subject) and subject.machine.user_id() != 0:
            return fail(f"{name}={port} needs privileges", required, _elsewhere(subject, name))
        held = _held(subject, port)
        if held is not None:
            return fail(f"{name}={port}: {held}", required, _elsewhere(subject, name))
    return ok(", ".join(f"{name}={port}" for name, port in sorted(ports.items())), required)


def _customary(subject: Subject) -> Finding:
    required = "the customary ports are free, for a stack that is started by hand"
    taken = {name: port for name, port in CUSTOMARY.items() if port not in subject.options.ports.values()}
    found = [f"{name}={port}: {held}" for name, port in taken.items() if (held := _held(subject, port)) is not None]
    if not found:
        return ok(", ".join(map(str, sorted(CUSTOMARY.values()))), required)
    return warn(
        f"{'; '.join(found)}. A run chooses others", required, "ss -ltnp   # who listens; end it if it is yours"
    )


def _held(subject: Subject, port: int) -> str | None:
    """Who has the port, in words; None when a server could bind it."""
    who = holder(subject.machine, port)
    if who is not None:
        return f"{who} listens there"
    for address in ("127.0.0.1", "0.0.0.0"):
        refusal = subject.machine.bind_refusal(address, port)
        if refusal is not None:
            return refusal
    return None


def _first_unprivileged(subject: Subject) -> int:
    text = (subject.machine.read_text(_UNPRIVILEGED) or "").strip()
    return int(text) if text.isdecimal() else 1024


def _elsewhere(subject: Subject, name: str) -> str:
    free = next((port for port in range(FIRST, LAST + 1) if _held(subject, port) is None), None)
    if free is None:
        return "ss -ltnp   # who listens on all these ports"
    return f"./noxw -s smoke -- --stack {subject.stack.name} --port {name}={free}   # or without --port"


def _range(subject: Subject) -> Finding:
    required = f"a range for outgoing connections that leaves {FIRST} to {LAST} to servers"
    low, high = _ephemeral(subject)
    shown = f"{low} to {high}"
    if low <= FIRST and high >= LAST:
        fix = f"sudo sysctl -w net.ipv4.ip_local_port_range='{_USED_TO[0]} {_USED_TO[1]}'"
        return warn(f"{shown}: the kernel may take a port between its choice and its use", required, fix)
    inside = [(name, port) for name, port in sorted(subject.options.ports.items()) if low <= port <= high]
    if inside:
        listed = ", ".join(f"{name}={port}" for name, port in inside)
        found = f"{shown}: {listed} may be taken by an outgoing connection"
        return warn(found, required, _elsewhere(subject, inside[0][0]))
    return ok(shown, required)


def _ephemeral(subject: Subject) -> tuple[int, int]:
    numbers = (subject.machine.read_text(_EPHEMERAL) or "").split()
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return _USED_TO
    return int(numbers[0]), int(numbers[1])


CHECKS = (
    Check(
        id="runtime.ports",
        title="ports asked for",
        group="runtime",
        why="a run with a fixed port cannot go elsewhere",
        symptom="`Address already in use` when a service starts",
        cause="another program, or an earlier stack, listens there",
        looks_at="/proc/net/tcp, and an attempt to bind; the holder by /proc/PID/fd",
        fix="ss -ltnp   # end what listens there, or ask for another one: --port NAME=N",
        reference="https://github.com/vllm-project/vllm/issues/8204",
        needed_for=("run",),
        look=_asked_for,
        rows=(23, 29),
    ),
    Check(
        id="runtime.customary-ports",
        title="customary ports",
        group="runtime",
        why="etcd, vLLM and Dynamo take these when they are started by hand",
        symptom="a command that was copied from a guide fails with `Address already in use`",
        cause="another program listens there",
        looks_at="the same, for 2379, 2380, 8000, 8001, 8002 and 50051",
        fix="ss -ltnp",
        reference="https://github.com/ai-dynamo/dynamo/issues/1188",
        needed_for=("run",),
        look=_customary,
        rows=(23, 29),
    ),
    Check(
        id="runtime.port-range",
        title="ports of the kernel",
        group="runtime",
        why="the kernel gives ports of this range to outgoing connections, at any moment",
        symptom="`Address already in use` now and then, on a port that was free a moment ago",
        cause="net.ipv4.ip_local_port_range covers the ports of servers",
        looks_at=_EPHEMERAL,
        fix="sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
        reference="https://docs.kernel.org/networking/ip-sysctl.html",
        needed_for=("run",),
        look=_range,
        rows=(29,),
    ),
)
