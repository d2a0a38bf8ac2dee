"""Where machine code runs: what its wheel's platform tags promise, against the symbols that it needs.

The versions that a manylinux tag allows are those of auditwheel's own policy file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib import resources
from typing import Any

from scripts.verify.archive import Problem
from scripts.verify.elf import Elf, highest, order

_FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
_TAG = re.compile(r"(?P<policy>manylinux(?:1|2010|2014|_\d+_\d+)|linux)_(?P<machine>x86_64|aarch64)")


def problems(member: str, elf: Elf, platforms: Collection[str]) -> Iterator[Problem]:
    """What a member with machine code needs beyond each of its wheel's platform tags."""
    for platform in sorted(platforms):
        tag = _TAG.fullmatch(platform)
        if tag is None:
            yield Problem(member, "is machine code, and the wheel's name is for any machine", found=platform)
            continue
        if elf.machine != tag["machine"]:
            yield Problem(member, "is for another machine than the wheel's name", tag["machine"], elf.machine)
        if tag["policy"] != "linux":
            yield from _beyond(member, elf, platform, _allowed(tag["policy"], tag["machine"]))


def _beyond(member: str, elf: Elf, platform: str, allowed: frozenset[str]) -> Iterator[Problem]:
    if not allowed:
        yield Problem(member, "needs what nobody can judge: auditwheel has no policy of that name", found=platform)
        return
    needed = frozenset[str]().union(*elf.versions.values())
    for family in _FAMILIES:
        most, promised = highest(needed - allowed, family), highest(allowed, family)
        if most is not None:
            yield Problem(member, f"needs more than {platform} promises", f"at most {promised or 'none'}", most)


def covers(platform: str, measured: str) -> bool:
    """Whether a wheel that auditwheel finds consistent with the tag `measured` keeps the promise of `platform`."""
    promised, kept = _floor(platform), _floor(measured)
    return promised is None or (kept is not None and kept <= promised)


def _floor(platform: str) -> tuple[int, ...] | None:
    """The C library's release that a platform tag asks for; None for one that asks for none."""
    tag = _TAG.fullmatch(platform)
    policy = None if tag is None else _policies().get(tag["policy"])
    return None if policy is None or policy["name"] == "linux" else order(policy["name"].removeprefix("manylinux"))


def _allowed(policy: str, machine: str) -> frozenset[str]:
    versions = _policies().get(policy, {}).get("symbol_versions", {}).get(machine, {})
    return frozenset(f"{family}_{number}" for family, numbers in versions.items() for number in numbers)


@cache
def _policies() -> dict[str, dict[str, Any]]:
    """Policy -> auditwheel's description of it, under each of its names."""
    text = resources.files("auditwheel.policy").joinpath("manylinux-policy.json").read_text(encoding="utf-8")
    return {name: policy for policy in json.loads(text) for name in (policy["name"], *policy["aliases"])}
