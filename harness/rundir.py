"""The folder of one run, `runs/<utc>-<id>/`: what is written there is whole or absent."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import DoctorError, UsageError

LATEST = "latest"


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
            file.write(encoded(text))
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


def encoded(text: str) -> bytes:
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
            hint="name another folder with --run-dir, or leave it out: each run makes one below runs/",
        )


def _point_latest(runs: Path, path: Path) -> None:
    """Make `runs/latest` lead to `path` in one step: of two runs that race, one wins and both links are whole."""
    target = path.relative_to(runs)
    new = runs / f".{LATEST}-{secrets.token_hex(4)}"
    new.symlink_to(target)
    new.replace(runs / LATEST)
