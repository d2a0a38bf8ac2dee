"""Runs a one-shot command to its end: the build plane and the makers of models.

Its output goes to files, never to a pipe: a grandchild that keeps a pipe open cannot hold the run up.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.clock import Clock, Deadline
from harness.ending import never
from harness.errors import InstallError, SmokestackError
from harness.process import Process, describe_exit
from harness.services.spec import ServiceSpec

_POLL_S = 0.05


@dataclass(frozen=True)
class ToolResult:
    """How a command ended. `stdout` is all of its standard output; standard error is in its log."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    seconds: float

    def describe(self) -> str:
        """How it ended, in words."""
        return describe_exit(self.returncode)


def run_tool(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    deadline: Deadline,
    clock: Clock,
    on_line: Callable[[str], None] | None = None,
    run_id: str | None = None,
    grace_s: float = 10.0,
    urgent: Callable[[], bool] = never,
    error: type[SmokestackError] = InstallError,
) -> ToolResult:
    """Run `argv` with exactly `env`; whatever its exit status, return it.

    Standard error is appended to `log` and passed on line by line to `on_line`; standard output goes to a file beside
    the log. At the deadline `error` is raised, on an interrupt `Interrupted`; in both cases, and whatever else is
    raised, the command and everything it started is ended first, with `grace_s` seconds to clean up.
    """
    stdout = log.with_suffix(".out")
    stdout.unlink(missing_ok=True)
    lines = _Tail(log, at=log.stat().st_size if log.exists() else 0)
    spec = ServiceSpec(log.stem, tuple(argv), env, cwd, log, stop_grace_s=grace_s)
    process = Process(spec, run_id=run_id or f"tool-{secrets.token_hex(8)}", stdout=stdout)
    began = clock.monotonic()
    process.start()
    try:
        while (returncode := process.poll()) is None:
            _pass_on(lines.read(), on_line)
            if deadline.passed(clock):
                raise _late(argv, deadline, log, error)
            clock.sleep(min(_POLL_S, deadline.remaining(clock)))
    finally:
        process.stop(urgent=urgent)
        _pass_on(lines.read(last=True), on_line)
    output = stdout.read_bytes().decode("utf-8", errors="replace")
    return ToolResult(tuple(argv), returncode, output, clock.monotonic() - began)


def _pass_on(lines: list[str], on_line: Callable[[str], None] | None) -> None:
    if on_line is not None:
        for line in lines:
            on_line(line)


def _late(argv: Sequence[str], deadline: Deadline, log: Path, error: type[SmokestackError]) -> SmokestackError:
    return error(
        f"{log.stem} did not end in time",
        expected=f"{' '.join(argv)} ends within {deadline.granted_s:g} s",
        found="it still runs",
        where=log.stem,
        hint=f"read {log}",
        log=log,
    )


@dataclass
class _Tail:
    """The lines that a growing file gained since the last look; a line without its newline waits for it."""

    path: Path
    at: int = 0
    _rest: bytes = field(default=b"")

    def read(self, *, last: bool = False) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as handle:
            handle.seek(self.at)
            new = handle.read()
        self.at += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        if last and self._rest:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", errors="replace").rstrip("\r") for line in whole]
