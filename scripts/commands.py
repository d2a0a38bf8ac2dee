"""Child processes of a build or an install: started here, and ended here with all that they started.

Each child leads a session of its own, so that it can be ended whole, by the process group that was recorded when it was
started, and so that a Ctrl-C reaches it through this process only. A child asks the kernel for a SIGTERM when this
process dies, so that even a SIGKILL here leaves no installer running.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import shlex
import signal
import subprocess
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.errors import DISK_FULL, BuildPlaneError, log_tail

STOP_GRACE_S = 5.0
LIMIT_S = 3600.0
"""For downloads and installs, which a slow line may stretch; a hung one must still end."""

ASK_LIMIT_S = 120.0
"""For a question to a program: its version, its help, where a Python is."""

WATCH_EVERY_S = 1.0
"""How often a `watch` is called while a child runs."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Finished:
    """How a child ended: status and output (stdout and stderr together). `expired`: it was ended for lack of time."""

    returncode: int
    output: str
    expired: bool = False


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    limit_s: float = LIMIT_S,
    answer: Path | None = None,
    umask: int = -1,
    watch: Callable[[], None] | None = None,
) -> Finished:
    """Run a child to its end, its output in `log`, and its stdout in `answer` where that is named: for a program to
    read, with no warning in between. Ends it whole after `limit_s`, or when told to stop.

    `umask` is the child's own (-1: this process's); `watch` is called about once a second until the child ends.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink, contextlib.ExitStack() as opened:
        stdout = sink if answer is None else opened.enter_context(answer.open("wb"))
        sink.write(f"$ {shlex.join(argv)}\n".encode())
        sink.flush()
        offset = sink.tell()
        returncode, expired = _run(_Child(argv, cwd, env, stdout, sink, umask), limit_s, watch)
    return Finished(returncode, log.read_bytes()[offset:].decode("utf-8", errors="replace"), expired)


def ask(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], limit_s: float = ASK_LIMIT_S) -> Finished | None:
    """`run` without a log: nothing is written to disk. None when there is no such program."""
    with os.fdopen(os.memfd_create("answer"), "w+b") as sink:
        try:
            returncode, expired = _run(_Child(argv, cwd, env, sink, sink, -1), limit_s, None)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        sink.seek(0)
        return Finished(returncode, sink.read().decode("utf-8", errors="replace"), expired)


def check(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    error: type[BuildPlaneError],
    what: str,
    hint: str | None = None,
    limit_s: float = LIMIT_S,
) -> str:
    """`run`, and raise `error` with the command and the end of its output unless it ends with 0, and in time."""
    finished = run(argv, cwd=cwd, env=env, log=log, limit_s=limit_s)
    if finished.returncode != 0 or finished.expired:
        expected = f"its end within {limit_s:g} s" if finished.expired else "exit status 0"
        found = "it still ran" if finished.expired else str(finished.returncode)
        tail = "\n    ".join([found, *log_tail(log)])
        full = os.strerror(errno.ENOSPC) in finished.output
        raise error(f"{what} failed", expected=expected, found=tail, log=log, hint=DISK_FULL if full else hint)
    return finished.output


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to send this process a SIGTERM when its parent ends (Linux; see prctl(2)).

    With the `parent`'s pid the SIGTERM also comes when it had ended before the kernel was asked.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        signal.raise_signal(signal.SIGTERM)


def stop_on_signals() -> None:
    """Turn the first SIGINT or SIGTERM into `KeyboardInterrupt`; later ones do not disturb the clean-up."""

    def handle(_number: int, _frame: types.FrameType | None) -> None:
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _STOP_SIGNALS:
        signal.signal(number, handle)


@dataclass(frozen=True)
class _Child:
    """What is started."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdout: IO[bytes]
    stderr: IO[bytes]
    umask: int


def _run(what: _Child, limit_s: float, watch: Callable[[], None] | None) -> tuple[int, bool]:
    """Start a child and wait for its end: its status, and whether it was ended for lack of time."""
    # A signal between the child's start and the `try` would leave it running: hold signals back until then.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        child = _start(what, mask)
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        expired = not _wait_watching(child, limit_s, watch)
        if expired:
            _end(child)
        return child.wait(), expired
    except BaseException:
        _end(child)
        raise


def _start(what: _Child, mask: set[signal.Signals] | set[int]) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return subprocess.Popen(
        what.argv,
        cwd=what.cwd,
        env=dict(what.env),
        umask=what.umask,
        stdin=subprocess.DEVNULL,
        stdout=what.stdout,
        stderr=what.stderr,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - no threads here
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child's process group: politely, then not. The leader is reaped last, so its id cannot be another's."""
    _signal_group(child.pid, signal.SIGTERM)
    try:
        # The group is the leader's until the leader is reaped: wait without reaping.
        _wait_unreaped(child, STOP_GRACE_S)
    finally:
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()


def _wait_watching(child: subprocess.Popen[bytes], seconds: float, watch: Callable[[], None] | None) -> bool:
    """Whether the child ended within `seconds`; `watch` is called again and again meanwhile."""
    if watch is None:
        return _wait_unreaped(child, seconds)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if _wait_unreaped(child, min(left, WATCH_EVERY_S)):
            return True
        watch()
    return False


def _wait_unreaped(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the child ended within `seconds`. Its id stays its own until somebody reaps it."""
    pidfd = os.pidfd_open(child.pid)
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
