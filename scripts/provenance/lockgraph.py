"""Who needs what, as uv's resolver wrote it into the lock: the `# via` comments under each pin.

They are comments: they decide nothing about what is installed. Only the SBOM's dependency graph reads them.
"""

from __future__ import annotations

import re

from scripts.requirements_file import normalised

_VIA = re.compile(r" +# via(?: (?P<only>\S.*))?| +#   (?P<one>\S.*)")

ROOT = "-r"
"""Stands for the stack's own requirements files."""


def requirers(lock: str) -> dict[str, frozenset[str]]:
    """Locked package -> the packages that require it, and `ROOT`. Empty for a pin without such a comment."""
    found: dict[str, frozenset[str]] = {}
    name = None
    for line in lock.splitlines():
        if line[:1] not in ("", " ", "#"):
            name = normalised(line.partition("==")[0])
            found[name] = frozenset()
        elif name is not None and (match := _VIA.fullmatch(line)):
            found[name] |= _requirer(match["only"] or match["one"] or "")
    return found


def _requirer(words: str) -> frozenset[str]:
    """What one line of a comment names; constraints and overrides, `-c` and `--override`, require nothing."""
    if words.startswith("-"):
        return frozenset({ROOT} if words.startswith("-r ") else ())
    return frozenset({normalised(words.partition("[")[0])} if words else ())
