"""Processes that are called like the stack's and are no run's: whoever looked for its processes by name would hit them.

Some are in sessions of their own, some in this one.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import psutil

NAMES = ("vllm-rs serve tiny", "VLLM::EngineCore", "python -m dynamo.frontend", "etcd --data-dir")
WAITS = "import sys; sys.stdin.read()"


@dataclass(frozen=True)
class Bystanders:
    """They live until `end`; while they do, `assert_untouched` may be asked at any time."""

    processes: tuple[subprocess.Popen[bytes], ...]

    @classmethod
    def start(cls) -> Bystanders:
        return cls(
            tuple(
                subprocess.Popen(
                    [name, "-c", WAITS, *name.split()],
                    executable=sys.executable,
                    stdin=subprocess.PIPE,
                    start_new_session=bool(index % 2),
                )
                for index, name in enumerate(NAMES)
            )
        )

    def assert_untouched(self) -> None:
        """All alive, and none stopped."""
        for process in self.processes:
            assert process.poll() is None, f"{process.args!r} was ended"
            assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED, f"{process.args!r} was stopped"

    def end(self) -> None:
        for process in self.processes:
            process.communicate(timeout=10)
