"""A stack of fakes on a bench, for the tests of what starts, watches and ends it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from harness.clock import SteadyClock
from harness.config import Deadlines
from harness.events import BaseEvent, ServiceStarted
from harness.ports import PortRoom, port_names
from harness.services.context import TRAINER, ServiceContext
from harness.services.spec import ServiceSpec
from harness.stack import Stack
from harness.teardown import Leftovers
from tests.harness import fakes

CLEAN = ((), ())


class Bench:
    """A stack of fakes in a folder, and what it told."""

    def __init__(self, root: Path, engines: int = 1, deadlines: Deadlines | None = None, **config: object) -> None:
        room = PortRoom()
        self.leases = {name: room.free() for name in port_names(engines)}
        fakes.make_environment(root / ".venv-cpu")
        changes = config if deadlines is None else {"deadlines": deadlines, **config}
        ports = {name: lease.port for name, lease in self.leases.items()}
        self.context: ServiceContext = fakes.context(root, ports=ports, engines=engines, **changes)
        self.events: list[BaseEvent] = []
        self.stack = Stack(self.context, clock=SteadyClock(), emit=self.events.append)

    def tell(self, file: str) -> None:
        """Leave a file for the fake programs to find."""
        (self.context.config.tmp_dir / file).touch()

    def core(self) -> int:
        """Pid of the first engine's inner process."""
        return int((self.context.config.tmp_dir / f"core-{self.context.config.ports['engine-0']}").read_text())

    def started(self) -> list[str]:
        return [event.service for event in self.events if isinstance(event, ServiceStarted)]

    def close(self) -> None:
        self.stack.stop(urgent=lambda: True)
        for lease in self.leases.values():
            lease.release()


def leftovers(left: Leftovers) -> tuple[object, object]:
    return (left.survivors, left.ports)


def watch_until(stack: Stack, error: type[Exception], seconds: float = 5.0) -> pytest.ExceptionInfo[Exception]:
    """Call `watch` until it raises; within `seconds`, or the test fails."""
    with pytest.raises(error) as caught:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stack.watch()
    return caught


def trainer_running(bench: Bench, code: str) -> ServiceSpec:
    """A trainer that is the Python in `code`."""
    context = bench.context
    return ServiceSpec(
        name=TRAINER,
        argv=(sys.executable, "-I", "-S", "-c", code),
        env={},
        cwd=context.config.tmp_dir,
        log=context.log(TRAINER),
    )
