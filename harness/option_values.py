"""Reads the values of options: a sound value out of each text, or what was expected of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from harness.config import MAX_STEPS
from harness.engines import MAX_TENSOR_PARALLEL
from harness.errors import UsageError


def positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text}")
    return value


def up_to(limit: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        value = int(text)
        if not 1 <= value <= limit:
            raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {limit}, found {text}")
        return value

    return whole


def engine_ranks(text: str) -> int:
    name, _, ranks = text.partition("=")
    if name != "tp" or not ranks.isdecimal() or not 1 <= int(ranks) <= MAX_TENSOR_PARALLEL:
        raise argparse.ArgumentTypeError(f"expected tp=RANKS with 1 to {MAX_TENSOR_PARALLEL}, found {text!r}")
    return int(ranks)


def steps(text: str) -> int:
    value = positive_int(text)
    if value > MAX_STEPS:
        raise argparse.ArgumentTypeError(f"expected at most {MAX_STEPS}, found {text}")
    return value


def positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value


def named_value(text: str) -> tuple[str, str]:
    """Of what is neither, nothing is repeated: it may be a secret in another tool's notation."""
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise argparse.ArgumentTypeError("expected NAME=VALUE, found no name, no = or no value")
    return name, value


def named_port(text: str) -> tuple[str, int]:
    name, separator, number = text.partition("=")
    if not separator or not number.isdecimal() or not 1 <= int(number) <= 65535:
        raise argparse.ArgumentTypeError(f"expected NAME=PORT with a port from 1 to 65535, found {text!r}")
    return name, int(number)


def named_ports(pairs: list[tuple[str, int]], names: Sequence[str]) -> Mapping[str, int]:
    """The ports that were fixed, by name: each a name of the run's, given once, and no port given twice."""
    ports: dict[str, int] = {}
    for name, number in pairs:
        if name not in names:
            raise UsageError(
                f"--port {name}: no such port",
                expected=", ".join(names),
                found=repr(name),
                hint="engines are counted from 0; --engines says how many there are",
            )
        if name in ports:
            raise UsageError(
                f"--port {name} is given twice",
                expected="one port a name",
                found=f"{ports[name]}, {number}",
                hint=f"leave one --port {name}=… out",
            )
        taken = [other for other, value in ports.items() if value == number]
        if taken:
            raise UsageError(
                f"port {number} is given to two services",
                expected="distinct ports",
                found=f"{taken[0]}, {name}",
                hint=f"--port {name}= another one, or left out: then it is a free one",
            )
        ports[name] = number
    return MappingProxyType(ports)
