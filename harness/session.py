"""What a command holds while it works: run folder, scratch folder, ports, clock, timeline and the view of it.

Everything here is released on exit, except what a standing stack still needs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clock import Clock, InterruptibleClock
from harness.config import Packing, RunConfig
from harness.errors import DoctorError, Interrupted, SmokestackError
from harness.eventlog import EVENTS_FILE, EventLog
from harness.events import BaseEvent, Failure
from harness.inuse import InUse, in_use_file
from harness.ports import PortRoom, port_names
from harness.report.console import Console
from harness.request import Request
from harness.rundir import RunDir
from harness.scratch import Scratch, make_scratch
from harness.signals import InterruptSignals, die_with_parent

CONFIG_FILE = "config.json"


class InternalError(SmokestackError):
    """A fault of this program. Recorded like any other end of a run, so that the stack is still taken down."""

    kind = "internal"
    exit_code = 70


@dataclass
class Session:
    """The open resources of one command. `config` is rewritten once the model's folder is known."""

    request: Request
    config: RunConfig
    run_dir: RunDir
    scratch: Scratch
    events: EventLog
    console: Console
    clock: Clock
    signals: InterruptSignals
    in_use: InUse

    def emit(self, event: BaseEvent) -> None:
        """Record an event of ours and show it."""
        self.console.on_event(self.events.record(event.model_dump(exclude={"t", "source"}), source=event.source))

    def emit_from_trainer(self, event: dict[str, Any]) -> None:
        """Record an event as the trainer told it."""
        self.console.on_event(self.events.record(event, source="trainer"))

    def note(self, text: str) -> None:
        self.console.on_event(self.events.emit("note", text=text))

    def warn(self, text: str) -> None:
        """A note that a quiet run shows too."""
        self.events.emit("note", text=text)
        self.console.warn(text)

    def use(self, **changes: Any) -> RunConfig:
        """Change the resolved configuration, and the file that tells it."""
        self.config = self.config.model_copy(update=changes)
        self.run_dir.write_json(CONFIG_FILE, self.config.model_dump(mode="json"))
        return self.config

    def record_failure(self, error: BaseException) -> SmokestackError:
        """Put down why the run ends early. What is not ours is a fault of this program, with its traceback.

        Does not raise, whatever the disk and the terminal are like.
        """
        recorded = error if isinstance(error, SmokestackError) else self._fault(error)
        recorded.rewrite(self.request.credentials.conceal)
        self.emit(Failure.of(recorded))
        return recorded

    def _fault(self, error: BaseException) -> InternalError:
        text = self.request.credentials.conceal("".join(traceback.format_exception(error)))
        what = f"internal error: {type(error).__name__}: {error}"
        try:
            log = self.run_dir.write_text("internal-error.txt", text)
        except DoctorError as unwritten:
            return InternalError(what, found=f"{text}({unwritten.what})", hint="please report it, with what was found")
        return InternalError(what, hint="please report it, with internal-error.txt of the run folder", log=log)


@contextmanager
def opened(request: Request) -> Iterator[Session]:
    """Open everything that a run needs before its first event.

    Ports and the scratch folder come before the run folder, so that most of what can be wrong is found before there
    is one; an error after that (a full disk) leaves a run folder without a verdict.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(InterruptSignals())
        die_with_parent(os.environ)
        clock = InterruptibleClock(signals.interrupt)
        room, names = PortRoom(), port_names(len(request.tensor_parallel))
        # Fixed ports first: a port that somebody holds must be found before anything is created.
        leases = {name: stack.enter_context(room.fixed(name, port)) for name, port in request.ports.items()}
        leases |= {name: stack.enter_context(room.free()) for name in names if name not in leases}
        scratch = make_scratch(os.environ)
        stack.callback(_remove_unless_standing, scratch)
        require_uninterrupted(signals)
        run_dir = RunDir.create(request.root / "runs", at=request.run_dir, newest=request.serving == "dynamo")
        events = stack.enter_context(
            EventLog(run_dir.path / EVENTS_FILE, monotonic=clock.monotonic, conceal=request.credentials.conceal)
        )
        config = _resolve(request, run_dir, scratch.path, {name: leases[name].port for name in names})
        console = stack.enter_context(Console(sys.stderr, quiet=request.quiet, conceal=request.credentials.conceal))
        in_use = stack.enter_context(InUse(in_use_file(request.root, request.stack)))
        session = Session(request, config, run_dir, scratch, events, console, clock, signals, in_use)
        session.use()
        yield session


def require_uninterrupted(signals: InterruptSignals) -> None:
    """Raise `Interrupted` if the command was asked to end while there is nothing yet to be ended or judged."""
    if signals.interrupt.is_set():
        names = " and ".join(signals.received)
        raise Interrupted(f"{names} before the run began: nothing was started, there is no run folder")


def _remove_unless_standing(scratch: Scratch) -> None:
    """The scratch folder of a run that is over; a standing stack keeps its own until `down`."""
    if not scratch.kept:
        scratch.remove()


def _resolve(request: Request, run_dir: RunDir, tmp_dir: Path, ports: dict[str, int]) -> RunConfig:
    return RunConfig(
        run_id=run_dir.run_id,
        run_dir=run_dir.path,
        project_root=request.root,
        stack=request.stack,
        environment=request.root / f".venv-{request.stack}",
        model=request.model.name,
        hub_cache=request.model.hub_cache,
        served_model_name=request.model.served_name,
        starts_untrained=request.model.starts_untrained,
        steps=request.steps,
        refit=request.refit,
        lora=request.lora,
        tensor_parallel=request.tensor_parallel,
        packing=request.packing or Packing(),
        rendezvous=request.rendezvous or "tcp",
        ports=ports,
        tmp_dir=tmp_dir,
        keep_up=request.keep_up,
        headers=request.credentials.described(),
        sabotage=request.sabotage,
        trainer=None if request.trainer is None else request.trainer.concealed(request.credentials.conceal),
        serving=request.serving,
        control=request.control,
        deadlines=request.deadlines,
        grpo=request.grpo,
        mismatch=request.mismatch,
    )
