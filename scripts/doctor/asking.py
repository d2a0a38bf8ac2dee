"""Questions to programs, each with a limit: the output through a pipe, nothing written, nothing left running.

`commands` is not used here: it writes a log and sets up its children in the forked process, and the doctor may do
neither, as it only looks, and asks from several threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OUTPUT_LIMIT = 256 * 1024

# A question must not change anything: no bytecode, no index refresh, no toolchain that is fetched on the way, and
# answers in English.
_QUIET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "RUSTUP_AUTO_INSTALL": "0",
    "CARGO_NET_OFFLINE": "true",
    "LC_ALL": "C.UTF-8",
}


# With vfork, a program on a dead mount would stop this whole process, deadlines and all, and not only the thread that
# starts it.
subprocess._USE_VFORK = False  # type: ignore[misc]


@dataclass(frozen=True)
class Answer:
    """How a program answered: status and output (stdout and stderr together).

    `status` is None when there was no answer; `problem` says why: not there, not to be run, too slow.
    """

    status: int | None
    output: str = ""
    problem: str = ""

    @property
    def good(self) -> bool:
        return self.status == 0

    @property
    def in_short(self) -> str:
        """One line for a finding: what went wrong, or the last thing that the program said."""
        if self.problem:
            return self.problem
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        said = f": {lines[-1][:200]}" if lines else ""
        return f"ended with {self.status}{said}"


class Questions:
    """Puts questions, from any thread, and ends those that are still open when told to."""

    def __init__(self) -> None:
        self._open: set[subprocess.Popen[bytes]] = set()
        self._mutex = threading.Lock()
        self._closed = False

    def ask(self, argv: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Answer:
        """Run `argv` in `/` and read what it says. Ends it, and all that it started, after `limit_s`."""
        name = os.path.basename(argv[0])  # noqa: PTH119 - text
        try:
            child = self._start(argv, environ)
        except FileNotFoundError:
            return Answer(None, problem=f"no {name}")
        except OSError as error:
            return Answer(None, problem=f"{name} cannot be run: {error.strerror or error}")
        try:
            output, in_time = _read(child, limit_s)
        finally:
            self._end(child)
        if not in_time:
            return Answer(None, problem=f"{name} did not answer within {limit_s:g} s")
        return Answer(child.returncode, output.decode("utf-8", errors="replace"))

    def close(self) -> None:
        """End every question that is still open; none can be put afterwards."""
        with self._mutex:
            self._closed = True
            for child in self._open:
                _kill_group(child.pid)

    def _start(self, argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starting a program can hang as well, on a dead mount: no mutex is held meanwhile."""
        child = subprocess.Popen(
            list(argv),
            cwd="/",
            env={**environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with self._mutex:
            self._open.add(child)
            over = self._closed
        if over:
            self._end(child)
            raise InterruptedError(errno.EINTR, "the examination is over")
        return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """End the whole group before its leader is reaped, while its id can be nobody else's."""
        with self._mutex:
            _kill_group(child.pid)
            self._open.discard(child)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _read(child: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bool]:
    """The output, and whether the program ended in time. Reading stops with the program, not with the pipe."""
    assert child.stdout is not None
    deadline = time.monotonic() + limit_s
    output = bytearray()
    os.set_blocking(child.stdout.fileno(), False)
    ended = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                events = {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if not events or time.monotonic() > deadline:
                    return bytes(output), False
                chunk = _chunk(child.stdout.fileno())
                output += (chunk or b"")[: OUTPUT_LIMIT - len(output)]
                if ended in events and not chunk:
                    return bytes(output), True
                if chunk == b"":
                    # Closed although the program goes on: from here only its end matters.
                    selector.unregister(child.stdout)
    finally:
        os.close(ended)


def _chunk(descriptor: int) -> bytes | None:
    """What can be read now; None when there is nothing now, empty at the end."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def locale_encoding(environ: Mapping[str, str]) -> str:
    """The character set that the environment's locale names; programs without one fall back to ASCII."""
    chosen = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C"
    _, dot, encoding = chosen.partition(".")
    return encoding.split("@")[0].lower() if dot else "ascii"
