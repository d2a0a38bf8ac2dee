"""Follows the trainer: the payload's process, its events on one pipe, our commands on another.

The order of events is a contract (`ready`, plan, `transfer.initialised`, then per version: `step` (not for version 0),
`refit`, `weights`, `probe`, our observation, `continue`; at last `perturbation` twice, each with an observation and
`continue`). Anything else ends the run: a trainer that is not understood is not trusted. No verdict is read from the
trainer's log.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from harness.clock import Clock
from harness.config import Deadlines
from harness.errors import RefitError, TrainingError
from harness.events import TRAINER_KINDS, Stage
from harness.vigil import Vigil

Event = dict[str, Any]
MAX_EVENT_BYTES = 16 * 1024 * 1024
BACKSTOP_RATIO = 1.25
BACKSTOP_S = 3.0
"""How much longer than the configured limit the trainer is waited for, as a ratio and as a minimum in seconds.

The trainer keeps the same limits itself, and only it can tell in which phase a refit hung and which engines it left
paused. Were both sides to give up at the same moment, that account would be lost to a bare "not in time".
"""


class TrainerChannel:
    """Two pipes to the trainer: JSON lines in, JSON lines out.

    `child_fds` go to the child (`--events-fd`, `--commands-fd`); call `child_started` once it holds them, so that the
    end of the child is seen as the end of the stream.
    """

    def __init__(self) -> None:
        self._events_read, events_write = os.pipe()
        commands_read, self._commands_write = os.pipe()
        self.child_fds = (events_write, commands_read)
        self._queue: queue.Queue[Event | None] = queue.Queue()
        self._heard: deque[Event | None] = deque()
        self._reader: threading.Thread | None = None
        self._unsent = b""
        # A trainer that does not read must not hold up whoever looks after the run.
        os.set_blocking(self._commands_write, False)
        self._closed = False
        self._fault: Event | None = None
        self.ended = False

    def child_started(self) -> None:
        for fd in self.child_fds:
            os.close(fd)
        self._reader = threading.Thread(target=self._read, name="trainer-events", daemon=True)
        self._reader.start()

    def put(self, command: Event) -> None:
        """Have a command sent; `sent` tells when the pipe has taken all of it."""
        self._unsent += json.dumps(command).encode() + b"\n"

    def sent(self) -> bool:
        """Write what the pipe takes now. Whether nothing is left; raises BrokenPipeError when nobody will read it."""
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[os.write(self._commands_write, self._unsent) :]
        return not self._unsent

    def hear(self, emit: Callable[[Event], None]) -> None:
        """Take what has arrived and record it, whoever is waiting for what. `ended` is true after the last of it."""
        with suppress(queue.Empty):
            while True:
                event = self._queue.get_nowait()
                if event is None:
                    self.ended = True
                else:
                    emit(event)
                    if event["kind"] == "trainer.error" and self._fault is None:
                        self._fault = event
                self._heard.append(event)

    def raise_fault(self, log: Path) -> None:
        """Raise what the trainer said of its own failure, as soon as that was heard: it is the last it says."""
        if self._fault is not None:
            raise as_error(self._fault.get("error"), log)

    @property
    def waiting(self) -> bool:
        """Whether `receive` has something to give."""
        return bool(self._heard)

    def receive(self) -> Event | None:
        """The next event that was heard. Raises IndexError when there is none; None is the end of the stream."""
        return self._heard.popleft()

    def close(self) -> None:
        """Close our ends; the trainer takes the end of the command pipe as the order to leave. Idempotent."""
        if self._closed:
            return
        self._closed = True
        os.close(self._commands_write)
        if self._reader is None:
            for fd in (self._events_read, *self.child_fds):
                os.close(fd)

    def _read(self) -> None:
        with os.fdopen(self._events_read, "rb") as stream:
            while line := stream.readline(MAX_EVENT_BYTES):
                self._queue.put(_parse(line))
        self._queue.put(None)


def _parse(line: bytes) -> Event:
    """One event, if it is of a kind that a trainer may report: what the harness records, it records itself."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    kind = event.get("kind") if isinstance(event, dict) else None
    if not isinstance(event, dict) or not isinstance(kind, str) or kind not in TRAINER_KINDS:
        shown = line[:200].decode("utf-8", errors="replace")
        return {"kind": "trainer.error", "error": {"kind": "protocol", "what": f"not an event of a trainer: {shown!r}"}}
    return event


@dataclass(frozen=True)
class Plan:
    """Where the stack is: what the trainer needs to reach frontend, engines and the rendezvous."""

    frontend_url: str
    served_model_name: str
    engines: list[dict[str, Any]]
    world_size: int
    master_address: str
    master_port: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    header_sources: Mapping[str, str] = field(default_factory=dict)
    slices: Sequence[Mapping[str, object]] = ()

    def command(self) -> Event:
        """Sent over a pipe that only the trainer reads: a file or an argument would show the headers to others."""
        return {"command": "plan", **self.__dict__}


@dataclass
class Follower:
    """Drives one training run over a channel.

    `watch` raises when any process of the run has died; `emit` records each event; `observe(version)` asks the stack
    itself while the trainer waits, and `observe_stage` after each refit of the perturbation.
    """

    channel: TrainerChannel
    clock: Clock
    deadlines: Deadlines
    log: Path
    watch: Callable[[], None]
    emit: Callable[[Event], None]
    observe: Callable[[int], object]
    observe_stage: Callable[[Stage], None]

    def await_ready(self) -> Event:
        return self._expect("trainer.ready", self.deadlines.trainer_ready_s)

    def train(self, plan: Plan, steps: int) -> None:
        """Version 0 is transferred first; then `steps` optimizer steps, each with its refit.

        A step is bounded twice by the trainer: its rollouts, and then its computation.
        """
        self._send(plan.command())
        self._expect("transfer.initialised", self.deadlines.rendezvous_s)
        for version in range(steps + 1):
            if version:
                self._expect("step", 2 * self.deadlines.step_s, field="step", value=version)
            self._expect("refit", self.deadlines.refit_s, field="version", value=version)
            self._expect("weights", self.deadlines.step_s, field="version", value=version)
            self._expect("probe", self.deadlines.step_s, field="version", value=version)
            self.observe(version)
            self._send({"command": "continue", "version": version})
        self._rehearse()
        self._expect("trainer.done", self.deadlines.request_s)

    def _rehearse(self) -> None:
        """The perturbation after the last step: a refit to changed weights, and one back."""
        for stage in get_args(Stage):
            self._expect("perturbation", self.deadlines.refit_s, field="stage", value=stage)
            self.observe_stage(stage)
            self._send({"command": "continue", "stage": stage})

    def _send(self, command: Event) -> None:
        """Its name alone is told of a command that is not taken: a plan carries an API key."""
        name, seconds = command["command"], self.deadlines.request_s
        self.channel.put(command)
        try:
            if Vigil(self.clock, self.watch).until(self.channel.sent, seconds):
                return
        except BrokenPipeError:
            raise TrainingError(
                "the trainer closed its command pipe",
                expected=f"it accepts the command {name!r}",
                found="the reading end is closed",
                log=self.log,
            ) from None
        raise TrainingError(
            "the trainer does not read its commands",
            expected=f"it takes the command {name!r} within {seconds:g} s",
            found="the pipe is full",
            hint="see the trainer's log; it may be stopped",
            log=self.log,
        )

    def _expect(self, kind: str, seconds: float, *, field: str | None = None, value: object = None) -> Event:
        event = self._next(kind, max(seconds * BACKSTOP_RATIO, seconds + BACKSTOP_S))
        if event["kind"] == "trainer.error":
            self.watch()
            raise as_error(event.get("error"), self.log)
        wanted = kind if field is None else f"{kind} with {field} {value}"
        if event["kind"] != kind or (field is not None and event.get(field) != value):
            found = event["kind"] if field is None else f"{event['kind']} with {field} {event.get(field)}"
            raise TrainingError("the trainer's events are out of order", expected=wanted, found=found, log=self.log)
        return event

    def _next(self, kind: str, seconds: float) -> Event:
        if not Vigil(self.clock, self.watch).until(self._has_heard, seconds):
            raise TrainingError(
                f"the trainer did not report {kind} in time",
                expected=f"event {kind} within {seconds:g} s",
                found="no event, nor an account of its own",
                hint="see the trainer's log; --step-timeout and --refit-timeout raise the limits",
                log=self.log,
            )
        event = self.channel.receive()
        if event is None:
            self.watch()
            raise TrainingError(
                "the trainer ended before its work was done",
                expected=f"event {kind}",
                found="end of its event stream",
                log=self.log,
            )
        return event

    def _has_heard(self) -> bool:
        self.channel.hear(self.emit)
        return self.channel.waiting


def as_error(told: object, log: Path) -> TrainingError:
    """The trainer's own account of its end, as an error of the run."""
    error: dict[str, Any] = told if isinstance(told, dict) else {}
    kind = RefitError if error.get("kind") == "refit" else TrainingError
    poisoned = error.get("poisoned") or []
    what = str(error.get("what", "the trainer failed without saying why"))
    if poisoned:
        what += f"; left paused, not to be used again: {', '.join(map(str, poisoned))}"
    return kind(
        what,
        expected=_text(error.get("expected")),
        found=_text(error.get("found")),
        where=_text(error.get("where")),
        hint=_text(error.get("hint")),
        log=log,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
