"""The build plane's errors: one root, and one class per exit status of the outcome contract.

Every error says what failed, what was expected and found, where the evidence lies and what to type next.
Imports nothing of the project.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

LOG_TAIL_LINES = 40

DISK_FULL = "free some space (df -h .) and run the same command again; nothing half-written is kept"
"""What to do, whatever was being done."""


class BuildPlaneError(Exception):
    """Root of all errors that the build plane reports. `exit_code` is the status of `python -m scripts`."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        hint: str | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.found = found
        self.where = where
        self.hint = hint
        self.log = log

    def as_json(self) -> dict[str, str | None]:
        """The `error` object of the `--json` answer."""
        return {
            "kind": self.kind,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
            "where": self.where,
            "hint": self.hint,
            "log": None if self.log is None else str(self.log),
        }

    def __str__(self) -> str:
        lines = [self.what]
        for label, value in (
            ("expected", self.expected),
            ("found", self.found),
            ("where", self.where),
            ("log", None if self.log is None else str(self.log)),
            ("fix", self.hint),
        ):
            if value is not None:
                lines.append(f"{label + ':':<10}{value}")
        return "\n  ".join(lines)


class UsageError(BuildPlaneError):
    """The caller's options are wrong; found before anything is changed."""

    kind = "usage"
    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        hint: str,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        log: Path | None = None,
    ) -> None:
        """As its root, with a `hint` always: who asked for it can ask for something else."""
        super().__init__(what, expected=expected, found=found, where=where, hint=hint, log=log)


class DoctorError(BuildPlaneError):
    """The machine lacks something that the stack needs."""

    kind = "doctor"
    exit_code = 10


class PinError(BuildPlaneError):
    """A stack file, or the lock beside it, is not exact or does not agree with the other."""

    kind = "pins"
    exit_code = 20


class BuildError(BuildPlaneError):
    """An artifact could not be fetched or made, or is not the pinned one."""

    kind = "build"
    exit_code = 20


class InstallError(BuildPlaneError):
    """The environment could not be filled, or what is installed is not what the manifest says."""

    kind = "install"
    exit_code = 20


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> list[str]:
    """The last `lines` lines of `path`, decoded leniently; empty when there is no such file."""
    if not path.is_file():
        return []
    with path.open("rb") as handle:
        handle.seek(0, 2)
        handle.seek(max(0, handle.tell() - 64 * 1024))
        text = handle.read().decode("utf-8", errors="replace")
    return text.splitlines()[-lines:]
