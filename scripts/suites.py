"""All test suites, one after the other: both planes, real builds, the payload in its environment, the real stack.

`python -m scripts.suites [pytest's options and paths]`. The options go to every suite, so a selection (`-k`, `-m`) may
leave some of them empty, which pytest reports as a failure of its own; here only a selection that leaves all of them
empty is one. A path, relative to where the caller is, goes to the suite that it lies in, and to those below it; then no
other suite runs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from scripts.cli import DIE_WITH_PARENT
from scripts.commands import die_with_parent
from scripts.layout import PROJECT_ROOT
from scripts.options import INVOKED_FROM

NOTHING_SELECTED = 5
USAGE = 4
"""pytest's exit statuses: no test was selected; what was asked for makes no sense."""

_PYTHON = (sys.executable, "-m")
_MOST_WORKERS = 8


def _workers() -> str:
    """Half of what unit tests take is waiting for small processes: three share two cores."""
    cores = len(os.sched_getaffinity(0))
    return os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or str(min(max(1, cores * 3 // 2), _MOST_WORKERS))


_REAL_TOOLS = "tests/scripts/real_tools"
"""The build plane with the real git, pip and uv, on small projects: several may run side by side."""

_TAKES_VALUE = re.compile(
    r"-[a-zA-Z]*[kmnpocWr]|--(?:ignore|deselect|ignore-glob|rootdir|basetemp|confcutdir|junit-?xml|log-file|config-file)"
)
"""pytest's options whose value may be the next argument, and a path that has tests."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Part:
    """One command. With `paths` it is a suite: it gets them, or those of the caller in them, and pytest's options."""

    argv: tuple[str, ...]
    paths: tuple[str, ...] = ()


PARTS = (
    Part(
        (*_PYTHON, "pytest", "-n", _workers(), "--ignore", _REAL_TOOLS),
        ("tests/harness", "tests/scripts", "tests/test_bridge.py"),
    ),
    Part((*_PYTHON, "pytest", "-n", "auto"), (_REAL_TOOLS,)),
    Part((*_PYTHON, "pytest"), ("tests/fixture_build",)),
    Part((*_PYTHON, "scripts", "install", "--stack", "cpu")),
    Part((*_PYTHON, "scripts.payload_tests", ".venv-cpu", ".nox/payload-tests"), ("tests/payload",)),
    Part((*_PYTHON, "pytest"), ("smoke",)),
)


def run_all(parts: Sequence[Part], arguments: Sequence[str], root: Path = PROJECT_ROOT) -> int:
    """Run everything up to the first failure, in `root`. Returns its status; 5 when no suite had a test to run.

    A command that is no suite prepares those after it, and is left out where none of these runs.
    """
    paths, options = _split(parts, arguments, root)
    missing = [path for path in paths if not _file_of(path).exists()]
    if missing:
        sys.stderr.write(f"{missing[0]}: no such file or folder\n")
        return USAGE
    # What follows an option may be its value: only pytest knows.
    strays = [word for before, word in pairwise(["", *options]) if not before.startswith("-") and word[:1] != "-"]
    if strays:
        sys.stderr.write(f"{strays[0]}: no suite has tests there; they have: {' '.join(_all_paths(parts))}\n")
        return USAGE
    chosen = [(part, _chosen(part, parts, paths, root)) for part in parts]
    last = max((i for i, (_, own) in enumerate(chosen) if own), default=-1)
    selected = False
    for part, own in chosen[: last + 1]:
        if part.paths and not own:
            continue
        status = _run([*part.argv, *own, *(options if part.paths else ())], root)
        empty_by_choice = status == NOTHING_SELECTED and part.paths and arguments
        if status != 0 and not empty_by_choice:
            return status
        selected |= bool(part.paths) and status == 0
    return 0 if selected else NOTHING_SELECTED


def _all_paths(parts: Sequence[Part]) -> list[str]:
    return [own for part in parts for own in part.paths]


def _split(parts: Sequence[Part], arguments: Sequence[str], root: Path) -> tuple[list[str], list[str]]:
    """Where tests are or should be, in full, and everything else: options, their values, what only pytest knows."""
    caller = Path(os.environ.get(INVOKED_FROM) or Path.cwd())
    paths: list[str] = []
    options: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        place = os.path.normpath(caller / argument)
        is_path = not argument.startswith("-") and not _TAKES_VALUE.fullmatch(before)
        if is_path and any(_suites_at(part, place, root) for part in parts):
            paths.append(place)
        else:
            options.append(argument)
    return paths, options


def _suites_at(part: Part, path: str, root: Path) -> bool:
    """Whether a path is above a suite's, below it, or the same."""
    file = _file_of(path)
    return any(file.is_relative_to(root / own) or (root / own).is_relative_to(file) for own in part.paths)


def _chosen(part: Part, parts: Sequence[Part], paths: Sequence[str], root: Path) -> list[str]:
    """What a suite is to run: all of its own where the caller names no path."""
    if not paths:
        return list(part.paths)
    below = [own for own in part.paths if any((root / own).is_relative_to(_file_of(path)) for path in paths)]
    return [*below, *[path for path in paths if _home(path, parts, root) is part]]


def _home(path: str, parts: Sequence[Part], root: Path) -> Part | None:
    """The suite that a path lies in: the one with the longest of the paths above it."""
    homes = [(own, part) for part in parts for own in part.paths if _file_of(path).is_relative_to(root / own)]
    return max(homes, key=lambda home: len(home[0]))[1] if homes else None


def _file_of(path: str) -> Path:
    """The file or folder of a test; `path` may end with the test's name in it."""
    return Path(path.partition("::")[0])


def _run(argv: Sequence[str], root: Path) -> int:
    """Run a command on this process's terminal. A signal is for the command, which ends itself: it is waited for."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: types.FrameType | None) -> None:
        # A Ctrl-C reaches the child from the terminal as well: both are in its foreground group.
        if number != signal.SIGINT:
            for child in children:
                child.send_signal(number)

    environment = {**os.environ, DIE_WITH_PARENT: str(os.getpid())}
    before = {number: signal.signal(number, pass_on) for number in _STOP_SIGNALS}
    try:
        children.append(subprocess.Popen(argv, cwd=root, env=environment))
        status = children[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    die_with_parent()
    sys.exit(run_all(PARTS, sys.argv[1:]))
