"""Follows the trainer: the payload's process, its events on one pipe, our commands on another.

The order of events is a contract (`ready`, plan, `transfer.initialised`, then per version: `step` (not for version 0),
`refit`, `probe`, our observation, `continue`). Anything else ends the run: a trainer that is not understood is not
trusted. No verdict is read from the trainer's log.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clock import Clock, Deadline
from harness.config import Deadlines
from harness.errors import RefitError, TrainingError
from harness.events import TRAINER_KINDS

Event = dict[str, Any]
MAX_EVENT_BYTES = 16 * 1024 * 1024
POLL_S = 0.005
WATCH_INTERVAL_S = 0.2
"""Looking after every process costs milliseconds, which the engine on the same cores would miss."""


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
        self._closed = False

    def child_started(self) -> None:
        for fd in self.child_fds:
            os.close(fd)
        self._reader = threading.Thread(target=self._read, name="trainer-events", daemon=True)
        self._reader.start()

    def send(self, command: Event) -> None:
        try:
            os.write(self._commands_write, json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            raise TrainingError(
                "the trainer closed its command pipe",
                expected=f"it accepts the command {command.get('command')!r}",
                found="the reading end is closed",
            ) from None

    def hear(self, emit: Callable[[Event], None]) -> None:
        """Take what has arrived and record it, whoever is waiting for what."""
        with suppress(queue.Empty):
            while True:
                event = self._queue.get_nowait()
                if event is not None:
                    emit(event)
                self._heard.append(event)

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

    def command(self) -> Event:
        return {"command": "plan", "headers": {}, **self.__dict__}


@dataclass
class Follower:
    """Drives one training run over a channel.

    `watch` raises when any process of the run has died; `emit` records each event; `observe(version)` asks the stack
    itself while the trainer waits.
    """

    channel: TrainerChannel
    clock: Clock
    deadlines: Deadlines
    log: Path
    watch: Callable[[], None]
    emit: Callable[[Event], None]
    observe: Callable[[int], None]
    _watched_at: float = float("-inf")

    def await_ready(self) -> Event:
        return self._expect("trainer.ready", self.deadlines.trainer_ready_s)

    def train(self, plan: Plan, steps: int) -> None:
        """Version 0 is transferred first; then `steps` optimizer steps, each with its refit."""
        self.channel.send(plan.command())
        self._expect("transfer.initialised", self.deadlines.rendezvous_s)
        for version in range(steps + 1):
            if version:
                self._expect("step", self.deadlines.step_s, field="step", value=version)
            self._expect("refit", self.deadlines.refit_s, field="version", value=version)
            self._expect("probe", self.deadlines.step_s, field="version", value=version)
            self.observe(version)
            self.channel.send({"command": "continue", "version": version})
        self._expect("trainer.done", self.deadlines.request_s)

    def _expect(self, kind: str, seconds: float, *, field: str | None = None, value: int | None = None) -> Event:
        deadline = Deadline.after(self.clock, seconds)
        event = self._next(kind, deadline)
        if event["kind"] == "trainer.error":
            raise self._failure(event.get("error", {}))
        wanted = kind if field is None else f"{kind} with {field} {value}"
        if event["kind"] != kind or (field is not None and event.get(field) != value):
            found = event["kind"] if field is None else f"{event['kind']} with {field} {event.get(field)}"
            raise TrainingError("the trainer's events are out of order", expected=wanted, found=found, log=self.log)
        return event

    def _next(self, kind: str, deadline: Deadline) -> Event:
        while True:
            self.channel.hear(self.emit)
            try:
                event = self.channel.receive()
            except IndexError:
                self._still_waiting(kind, deadline)
                continue
            if event is None:
                self.watch()
                raise TrainingError(
                    "the trainer ended before its work was done",
                    expected=f"event {kind}",
                    found="end of its event stream",
                    log=self.log,
                )
            return event

    def _still_waiting(self, kind: str, deadline: Deadline) -> None:
        now = self.clock.monotonic()
        if now - self._watched_at >= WATCH_INTERVAL_S:
            self._watched_at = now
            self.watch()
        if deadline.passed(self.clock):
            raise TrainingError(
                f"the trainer did not report {kind} in time",
                expected=f"event {kind} within {deadline.granted_s:g} s",
                found="no event",
                hint="see the trainer's log; --step-timeout and --refit-timeout raise the limits",
                log=self.log,
            )
        self.clock.sleep(POLL_S)

    def _failure(self, error: dict[str, Any]) -> TrainingError:
        """The trainer's own account of its end, as an error of the run."""
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
            log=self.log,
        )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
