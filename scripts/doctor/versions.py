"""Version numbers out of what programs say, as tuples that compare."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+(?:\.\d+)*")


def parse(text: str) -> tuple[int, ...] | None:
    """The first version number in `text`: `cmake version 3.25.1` is (3, 25, 1). None without one."""
    found = re.search(r"\d+(?:\.\d+)+", text) or _NUMBER.search(text)
    return None if found is None else tuple(int(part) for part in found.group().split("."))


def dotted(version: tuple[int, ...]) -> str:
    """`3.25.1`."""
    return ".".join(map(str, version))
