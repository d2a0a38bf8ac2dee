"""`python -m scripts.recipes.cargo_jobs FILE`: takes `build.jobs` out of a source's cargo configuration.

Dynamo's says there, in the words of a shell, how many jobs it wants. cargo does not expand them, which
`CARGO_BUILD_JOBS` heals; maturin reads the file by itself, and refuses whatever is no number, with the variable or
without. So the line goes, in the work copy only: everything else stays as it is, which is checked.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from scripts import commands
from scripts.errors import BuildError, BuildPlaneError

_TABLE = re.compile(r"^\s*\[\s*(?P<name>[^\]]+?)\s*\]\s*(#.*)?$")
_JOBS = re.compile(r"^\s*jobs\s*=")


def without_jobs(text: str) -> str:
    """The configuration without `jobs` of its table `build`. Raises `BuildError` where it is written some other way."""
    before = tomllib.loads(text)
    if "jobs" not in before.get("build", {}):
        return text
    table, lines = "", []
    for line in text.splitlines(keepends=True):
        heading = _TABLE.match(line)
        table = heading["name"] if heading else table
        if not (table == "build" and _JOBS.match(line)):
            lines.append(line)
    shorter = "".join(lines)
    del before["build"]["jobs"]
    if tomllib.loads(shorter) != before:
        raise BuildError("build.jobs is not a line of its own in [build]", found=text)
    return shorter


def main(argv: Sequence[str]) -> int:
    commands.stop_on_signals()
    path = Path(argv[0])
    if not path.is_file():
        print(f"there is no {path.name}: nothing to do")  # noqa: T201 - this program's output
        return 0
    try:
        path.write_text(without_jobs(path.read_text(encoding="utf-8")), encoding="utf-8")
    except (BuildPlaneError, tomllib.TOMLDecodeError) as error:
        print(f"error: {path}: {error}", file=sys.stderr)  # noqa: T201 - this program's output
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
