"""The channel to the trainer: its events on one pipe, our commands on another, and its account of its own failure."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import RefitError, TrainingError
from harness.events import TRAINER_KINDS

Event = dict[str, Any]
MAX_EVENT_BYTES = 16 * 1024 * 1024


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
