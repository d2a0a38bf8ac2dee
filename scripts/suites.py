"""All test suites, one after the other: both planes, real builds, the payload in its environment, the real stack.

`python -m scripts.suites [pytest's options]`. The options go to every suite, so a selection (`-k`, `-m`) may leave some
of them empty, which pytest reports as a failure of its own; here only a selection that leaves all of them empty is one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.cli import DIE_WITH_PARENT
from scripts.commands import die_with_parent

NOTHING_SELECTED = 5
"""pytest's exit status when no test was selected."""

_PYTHON = (sys.executable, "-m")
_UNIT = (*_PYTHON, "pytest", "-n", "auto")
_REAL_TOOLS = "tests/scripts/real_tools"
"""The build plane with the real git, pip and uv, on small projects: several may run side by side."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Part:
    """One command; `selects`: it is a suite, which gets pytest's options."""

    argv: tuple[str, ...]
    selects: bool = True


PARTS = (
    Part((*_UNIT, "--ignore", _REAL_TOOLS, "tests/harness", "tests/scripts", "tests/test_bridge.py")),
    Part((*_UNIT, _REAL_TOOLS)),
    Part((*_PYTHON, "pytest", "tests/fixture_build")),
    Part((*_PYTHON, "scripts", "install", "--stack", "cpu"), selects=False),
    Part((*_PYTHON, "scripts.payload_tests", ".venv-cpu", ".nox/payload-tests")),
    Part((*_PYTHON, "pytest", "smoke")),
)


def run_all(parts: Sequence[Part], options: Sequence[str]) -> int:
    """Run everything up to the first failure. Returns its status; 5 when no suite had a test to run."""
    selected = False
    for part in parts:
        status = _run([*part.argv, *(options if part.selects else ())])
        empty_by_choice = status == NOTHING_SELECTED and part.selects and options
        if status != 0 and not empty_by_choice:
            return status
        selected |= part.selects and status == 0
    return 0 if selected else NOTHING_SELECTED


def _run(argv: Sequence[str]) -> int:
    """Run a command on this process's terminal. A signal is for the command, which ends itself: it is waited for."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: types.FrameType | None) -> None:
        # A Ctrl-C reaches the child from the terminal as well: both are in its foreground group.
        if number != signal.SIGINT:
            for child in children:
                child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _STOP_SIGNALS}
    try:
        children.append(subprocess.Popen(argv, env={**os.environ, DIE_WITH_PARENT: str(os.getpid())}))
        status = children[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    die_with_parent()
    sys.exit(run_all(PARTS, sys.argv[1:]))
