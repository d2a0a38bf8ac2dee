"""Services that are small Python scripts, which tell in files how far they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from harness.process import Process
from harness.proctable import ProcessId, read_row
from harness.services.spec import ServiceSpec
from tests.harness.waiting import until

Start = Callable[[str], Process]
"""Starts a script as a service; see the fixture of that name."""

RUN = "test-run"

# Each script ends by itself after a minute, so that a failing test leaves nothing for long.
PRELUDE = """
import os, signal, subprocess, sys, time
from pathlib import Path
signal.alarm(60)
def tell(name, pid=None):
    part = Path(name + ".part"); part.write_text(str(pid or os.getpid())); part.rename(name)
def rest():
    while True: time.sleep(60)
"""
RESTING_CHILD = "import time; time.sleep(60)"


def told(path: Path) -> ProcessId:
    """The process whose pid a script wrote to `path`."""
    until(f"{path.name} is written", path.exists)
    row = read_row(int(path.read_text()))
    assert row is not None
    return row.id


def runs(process: ProcessId) -> bool:
    row = read_row(process.pid)
    return row is not None and row.id == process and not row.ended


def service(folder: Path, script: str, *, name: str = "service") -> ServiceSpec:
    return ServiceSpec(
        name=name,
        argv=(sys.executable, "-c", PRELUDE + script),
        env={"PATH": os.defpath},
        cwd=folder,
        log=folder / f"{name}.log",
        stop_grace_s=10.0,
    )


def spawning(child: str) -> str:
    """A script that starts `child` (Python) as a child process and rests; the child tells its own pid."""
    return f"subprocess.Popen([sys.executable, '-c', {PRELUDE + child!r}])\nrest()\n"
