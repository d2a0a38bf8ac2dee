"""The run plane's errors: one root, and one class per exit status of the outcome contract.

Every error says what failed, what was expected and found, where the evidence lies and what to type next. The status
says how far the run came, `kind` says what ended it:

    0    the run passed                        (no error)
    1    a check failed                        (no error: the run went to its end)
    2    usage
    10   doctor                                the machine lacks something, a full disk included
    20   install
    30   not-ready, service-died, http, observation, exposure   before the training began
    31   discovery                             at any time: the workers are not those that the run expects
    40   training, refit; and from the first transfer on also service-died, http, observation, not-ready
    50   teardown                              something was left behind, or could not be stopped
    70   internal                              a fault of this program (EX_SOFTWARE of sysexits.h)
    130  interrupted

The end of a service during the training is 40, since the same end is often heard from the trainer first, as a failed
refit: one cause must not have two statuses by chance. Imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

LOG_TAIL_LINES = 40


class SmokestackError(Exception):
    """Root of all errors that a run reports.

    `kind` goes into `verdict.json`'s `failure.kind`; `exit_code` is the status of `python -m harness`. What has no
    status of its own is a fault of this program.
    """

    kind: ClassVar[str] = "error"
    exit_code: int = 70

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

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change each of its texts, before they are told to anybody."""
        self.what = change(self.what)
        for name in ("expected", "found", "where", "hint"):
            text = getattr(self, name)
            setattr(self, name, None if text is None else change(text))

    def __str__(self) -> str:
        parts = [self.what]
        if self.expected is not None:
            parts.append(f"expected: {self.expected}")
        if self.found is not None:
            parts.append(f"found: {self.found}")
        if self.where is not None:
            parts.append(f"where: {self.where}")
        if self.hint is not None:
            parts.append(f"fix: {self.hint}")
        return "\n  ".join(parts)


class UsageError(SmokestackError):
    """The caller's options or files are wrong; found before anything starts."""

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


class DoctorError(SmokestackError):
    """The machine lacks something that the stack needs."""

    kind = "doctor"
    exit_code = 10


class InstallError(SmokestackError):
    """Build or install of the stack failed, or what is installed is not what is pinned."""

    kind = "install"
    exit_code = 20


class NotReadyError(SmokestackError):
    """A service did not become ready within its deadline."""

    kind = "not-ready"
    exit_code = 30


class ServiceDiedError(NotReadyError):
    """A service ended although it should run."""

    kind = "service-died"


class DiscoveryError(SmokestackError):
    """The discovery answer breaks the protocol, or the topology is not the expected one."""

    kind = "discovery"
    exit_code = 31


class TrainingError(SmokestackError):
    """A refit or an optimizer step failed."""

    kind = "training"
    exit_code = 40


class RefitError(TrainingError):
    """A weight refit failed; the engines that it touched stay paused."""

    kind = "refit"


@contextmanager
def during_training() -> Iterator[None]:
    """Whatever is not ready, ends or does not answer in here ends the training, and has its status."""
    try:
        yield
    except SmokestackError as error:
        if error.exit_code == NotReadyError.exit_code:
            error.exit_code = TrainingError.exit_code
        raise


class TeardownError(SmokestackError):
    """Something of the run outlived the teardown."""

    kind = "teardown"
    exit_code = 50


class Interrupted(SmokestackError):  # noqa: N818 - an outcome, not a fault
    """SIGINT or SIGTERM asked the run to end."""

    kind = "interrupted"
    exit_code = 130


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> list[str]:
    """The last `lines` lines of `path`, decoded leniently; empty when there is no such file."""
    if not path.is_file():
        return []
    with path.open("rb") as handle:
        handle.seek(0, 2)
        size = handle.tell()
        handle.seek(max(0, size - 64 * 1024))
        text = handle.read().decode("utf-8", errors="replace")
    return text.splitlines()[-lines:]
