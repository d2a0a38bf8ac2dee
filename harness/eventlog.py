"""The timeline of a run, `events.jsonl`: it only grows, and survives a full disk."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import DoctorError
from harness.rundir import cannot_write, encoded, json_ready

EVENTS_FILE = "events.jsonl"
_LATEST_READING_S = 1e10
"""Centuries: whoever tells more of a monotonic clock does not tell its time."""


class EventLog:
    """The run's timeline: events as dicts, kept in memory and appended to `events.jsonl`, one line each.

    `t` is in seconds since the log was opened. Safe to use from several threads. Recording never raises: when the file
    can no longer be written it is cut back to whole lines, `failed` says why, and later events are kept in memory only,
    so that a full disk cannot keep a run from being torn down and judged. `require_written` turns it into an error.
    """

    def __init__(
        self, path: Path, *, monotonic: Callable[[], float], conceal: Callable[[str], str] = lambda text: text
    ) -> None:
        """`monotonic` is the clock's, the same that the trainer's events are stamped with.

        `conceal` takes out of each text what must not be written down, whoever said it.
        """
        self.path = path
        self._conceal = conceal
        self.failed: DoctorError | None = None
        self._monotonic = monotonic
        self._began = monotonic()
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._size = 0
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot_write(path, error) from error

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events so far, in order; numbers as they were emitted, NaN included."""
        with self._lock:
            return list(self._events)

    def require_written(self) -> None:
        """Raise `DoctorError` when an event could not be written: a run without its timeline cannot be a pass."""
        if self.failed is not None:
            raise self.failed

    def emit(self, kind: str, *, source: str = "harness", **fields: Any) -> dict[str, Any]:
        """Record something that happens now."""
        return self.record({"kind": kind, **fields}, source=source)

    def record(self, event: Mapping[str, Any], *, source: str) -> dict[str, Any]:
        """Record an event of `source`, whatever the event says of its own source.

        A `t` in it is a reading of the machine's monotonic clock.
        """
        told = {
            name: _each_text(value, self._conceal)
            for name, value in event.items()
            if name not in {"t", "source", "kind"}
        }
        with self._lock:
            stamp = _reading(event.get("t"), self._monotonic())
            kept = {"t": round(stamp - self._began, 6), "source": source, "kind": event["kind"], **told}
            self._events.append(kept)
            if self.failed is None:
                self._append(encoded(json.dumps(json_ready(kept), ensure_ascii=False, allow_nan=False) + "\n"))
        return kept

    def close(self) -> None:
        """Flush to the disk. Events can still be recorded in memory afterwards."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        if self._handle < 0:
            return
        try:
            written = os.write(self._handle, line)
            while written < len(line):
                written += os.write(self._handle, line[written:])
        except OSError as error:
            self.failed = cannot_write(self.path, error)
            # A disk that cannot even be cut back leaves half a line, which no reader takes for an event.
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
        else:
            self._size += len(line)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_each_text(name, change): _each_text(item, change) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_each_text(item, change) for item in value)
    return value


def _reading(told: object, now: float) -> float:
    """A reading of the monotonic clock as an event tells it; `now` for whatever cannot be one."""
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 <= told <= _LATEST_READING_S:
        return now
    return float(told)
