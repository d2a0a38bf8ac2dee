"""All test suites, one after the other: both planes, real builds, the payload in its environment, the real stack.

`python -m scripts.suites [pytest's options and paths]`. The options go to every suite, so a selection (`-k`, `-m`) may
leave some of them empty, which pytest reports as a failure of its own; here only a selection that leaves all of them
empty is one. A path goes to the suite that it lies in, and to those below it; then no other suite runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.cli import DIE_WITH_PARENT
from scripts.commands import die_with_parent
from scripts.layout import PROJECT_ROOT

NOTHING_SELECTED = 5
USAGE = 4
"""pytest's exit statuses: no test was selected; what was asked for makes no sense."""

_PYTHON = (sys.executable, "-m")
_UNIT = (*_PYTHON, "pytest", "-n", str(max(1, len(os.sched_getaffinity(0)) * 3 // 2)))
"""Half of what unit tests take is waiting for small processes: three share two cores."""

_REAL_TOOLS = "tests/scripts/real_tools"
"""The build plane with the real git, pip and uv, on small projects: several may run side by side."""

_VALUED = frozenset(
    {"-k", "-m", "-n", "-p", "-o", "-c", "-W", "-r", "--ignore", "--deselect", "--rootdir", "--basetemp"}
)
"""pytest's options whose value may be the next argument, and may look like a path."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Part:
    """One command. With `paths` it is a suite: it gets them, or those of the caller in them, and pytest's options."""

    argv: tuple[str, ...]
    paths: tuple[str, ...] = ()


PARTS = (
    Part((*_UNIT, "--ignore", _REAL_TOOLS), ("tests/harness", "tests/scripts", "tests/test_bridge.py")),
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
    paths, options = _split(arguments, root)
    strays = [path for path in paths if not any(_chosen(part, parts, [path], root) for part in parts)]
    if strays:
        sys.stderr.write(f"{strays[0]}: no suite has tests there; they lie in tests/ and smoke/\n")
        return USAGE
    chosen = {part: _chosen(part, parts, paths, root) for part in parts}
    last = max((i for i, part in enumerate(parts) if chosen[part]), default=-1)
    selected = False
    for part in parts[: last + 1]:
        if part.paths and not chosen[part]:
            continue
        status = _run([*part.argv, *chosen[part], *(options if part.paths else ())], root)
        empty_by_choice = status == NOTHING_SELECTED and part.paths and arguments
        if status != 0 and not empty_by_choice:
            return status
        selected |= bool(part.paths) and status == 0
    return 0 if selected else NOTHING_SELECTED


def _split(arguments: Sequence[str], root: Path) -> tuple[list[str], list[str]]:
    """Paths, and options with their values."""
    paths: list[str] = []
    options: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        is_value = before in _VALUED or argument.startswith("-")
        (paths if not is_value and _place(argument, root).exists() else options).append(argument)
    return paths, options


def _chosen(part: Part, parts: Sequence[Part], paths: Sequence[str], root: Path) -> list[str]:
    """What a suite is to run: all of its own where the caller names no path."""
    if not paths:
        return list(part.paths)
    below = [own for own in part.paths if any(_place(own, root).is_relative_to(_place(path, root)) for path in paths)]
    inside = [path for path in paths if _home(path, parts, root) is part]
    return list(dict.fromkeys([*below, *inside]))


def _home(path: str, parts: Sequence[Part], root: Path) -> Part | None:
    """The suite that a path lies in: the one with the longest of the paths above it."""
    homes = [(len(own), part) for part in parts for own in part.paths if _above(own, path, root)]
    return max(homes, key=lambda one: one[0])[1] if homes else None


def _above(own: str, path: str, root: Path) -> bool:
    return _place(path, root).is_relative_to(_place(own, root))


def _place(path: str, root: Path) -> Path:
    """Where a test's file or folder lies; `path` may end with the test's name in it."""
    return (root / path.partition("::")[0]).resolve()


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
