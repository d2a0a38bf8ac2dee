"""The trainer's side of the two pipes: events out, commands in, one JSON object a line. Imports no torch."""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from smokestack_payload.errors import ProtocolError

LEFT_ALONE = 1
"""Exit status when the command pipe ends: the harness is gone."""


class EventWriter:
    """Writes events to a file descriptor. Safe from several threads; a line is never torn."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def emit(self, kind: str, **fields: Any) -> None:
        """One event, stamped with the machine's monotonic clock in seconds.

        A number that is none must be heard of, not end the trainer: it travels as "NaN", "Infinity" or "-Infinity".
        """
        event = _plain({"t": time.monotonic(), "kind": kind, **fields})
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


class CommandReader:
    """Reads commands in a thread, so that the end of the pipe is seen whatever the main thread is stuck in.

    `leave` is called at the end of the pipe; by default it ends the process at once.
    """

    def __init__(self, fd: int, leave: Callable[[], None] | None = None) -> None:
        self._fd = fd
        self._leave = leave or _leave_at_once
        self._commands: queue.Queue[Mapping[str, Any] | ProtocolError] = queue.Queue()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def expect(self, name: str) -> Mapping[str, Any] | None:
        """Wait for the command `name`; None when the harness says `stop` instead. Anything else is an error.

        There is no time limit: the harness decides how long it looks at a version, and its end is seen.
        """
        command = self._commands.get()
        if isinstance(command, ProtocolError):
            raise command
        if command.get("command") == "stop":
            return None
        if command.get("command") != name:
            # Its name alone: a plan carries an API key.
            raise ProtocolError("a command out of order", expected=name, found=str(command.get("command"))[:200])
        return command

    def _read(self) -> None:
        with os.fdopen(self._fd, "rb") as stream:
            for line in stream:
                self._commands.put(_parse(line))
        self._leave()


def _parse(line: bytes) -> Mapping[str, Any] | ProtocolError:
    try:
        command = json.loads(line)
    except ValueError:
        command = None
    if isinstance(command, dict):
        return command
    return ProtocolError(
        "a line on the command pipe is no command", expected="a JSON object", found=f"{len(line)} bytes"
    )


def _plain(value: Any) -> Any:
    """`value` with its non-finite numbers as strings, which JSON has no other way to write."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _leave_at_once() -> None:
    sys.stderr.write("the harness closed the command pipe: leaving\n")
    sys.stderr.flush()
    os._exit(LEFT_ALONE)
