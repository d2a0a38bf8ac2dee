"""The folder of one run, `runs/<utc>-<id>/`: what is written there is whole or absent, and the timeline only grows."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import DoctorError, UsageError

EVENTS_FILE = "events.jsonl"
LATEST = "latest"
_LATEST_READING_S = 1e10
"""Centuries: whoever tells more of a monotonic clock does not tell its time."""


class RunDir:
    """A run's folder. `run_id` also marks the run's processes."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self.run_id = run_id

    @classmethod
    def create(
        cls,
        runs: Path,
        *,
        at: Path | None = None,
        newest: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> RunDir:
        """A new folder in `runs`, or exactly `at` where the user names one. `runs/latest` then leads to the `newest`.

        Raises `UsageError` when `at` is there and holds something, `DoctorError` when the folder cannot be written.
        """
        run_id = f"{now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        path = (runs / run_id if at is None else at).absolute()
        try:
            if at is not None:
                _refuse_used(path)
            path.mkdir(parents=True, exist_ok=at is not None)
            (path / "logs").mkdir()
            if newest and path.is_relative_to(runs.absolute()):
                _point_latest(runs.absolute(), path)
        except OSError as error:
            raise cannot_write(path, error) from error
        return cls(path, run_id)

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log(self, service: str) -> Path:
        return self.logs / f"{service}.log"

    def write_json(self, name: str, value: object) -> Path:
        """See `write_json`."""
        return write_json(self.path / name, value)

    def write_text(self, name: str, text: str) -> Path:
        """See `write_text`."""
        return write_text(self.path / name, text)


def write_json(path: Path, value: object) -> Path:
    """Write JSON values (paths too) to `path`, readable, whole or not at all."""
    return write_text(path, json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Replace `path` in one step; after a crash or on a full disk the old content is still there, whole.

    Raises `DoctorError` when it cannot be written.
    """
    part: str | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            part = file.name
            file.write(_encoded(text))
            file.flush()
            os.fsync(file.fileno())
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except OSError as error:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        raise cannot_write(path, error) from error
    return path


def json_ready(value: object) -> object:
    """`value` in plain JSON's terms: paths become strings, and so do NaN and the infinities, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


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
                self._append(_encoded(json.dumps(json_ready(kept), ensure_ascii=False, allow_nan=False) + "\n"))
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


def _encoded(text: str) -> bytes:
    """UTF-8. A lone surrogate, which only another program's JSON can bring, becomes its escape: JSON again."""
    return text.encode(errors="backslashreplace")


def cannot_write(path: Path, error: OSError) -> DoctorError:
    """The run's error for a place that cannot be written: full, read-only, forbidden."""
    return DoctorError(
        f"{path} cannot be written: {error.strerror}",
        expected="a place on a disk with room, where this user may write",
        found=f"{error.strerror} ({error.filename or path})",
        where=str(path),
        hint="free some space (df -h), or name another folder with --run-dir",
    )


def _refuse_used(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir() or any(path.iterdir()):
        raise UsageError(
            f"--run-dir {path} is not empty",
            expected="a folder that is empty or does not exist yet",
            found="a folder with files in it" if path.is_dir() else "a file",
            where=str(path),
        )


def _point_latest(runs: Path, path: Path) -> None:
    """Make `runs/latest` lead to `path` in one step: of two runs that race, one wins and both links are whole."""
    target = path.relative_to(runs)
    new = runs / f".{LATEST}-{secrets.token_hex(4)}"
    new.symlink_to(target)
    new.replace(runs / LATEST)
