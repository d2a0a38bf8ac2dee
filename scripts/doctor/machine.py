"""How a check sees a machine: a handful of small readers, so that a test can be any machine it wants.

Readers write nothing, and say "not there" by None instead of raising. What a program is asked has a limit in seconds,
and each question is put once. `real_machine` reads the one at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scripts.doctor.asking import Answer
from scripts.jobs import Resources

READ_LIMIT = 3 << 20
"""The kernel refuses reads of 4 MiB and more from /proc/sys."""

ASK_LIMIT_S = 4.0


@dataclass(frozen=True)
class Space:
    """Of the file system below a path: bytes in all and free for this user, and how it is mounted."""

    path: str
    total: int
    free: int
    read_only: bool = False
    noexec: bool = False
    files_free: int | None = None
    """How many more files it can hold; None where it has no such bound."""


class Machine(Protocol):
    """What checks may ask."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    @property
    def home(self) -> str: ...

    def system(self) -> str:
        """`Linux`."""

    def architecture(self) -> str:
        """`x86_64`."""

    def libc(self) -> str:
        """`glibc 2.36`, of the C library that this Python runs on; empty where it does not say."""

    def python_version(self) -> tuple[int, int, int]:
        """Of the Python that runs the doctor."""

    def user_id(self) -> int: ...

    def cores(self) -> int:
        """Those that this process may use."""

    def resources(self) -> Resources:
        """Cores and bytes of memory that this process may use, the limits of control groups taken off."""

    def now(self) -> float:
        """Seconds since 1970."""

    def locale_encoding(self) -> str:
        """`utf-8`, as programs of this environment would choose it."""

    def open_files_limit(self) -> tuple[int, int]:
        """Soft and hard; -1 is no limit."""

    def read_text(self, path: str | Path) -> str | None:
        """A file's text, at most 3 MiB of it; None when it is not there or may not be read."""

    def entries(self, path: str | Path) -> tuple[str, ...] | None:
        """The names in a folder, sorted; None when there is no such folder or it may not be read."""

    def exists(self, path: str | Path) -> bool: ...

    def is_dir(self, path: str | Path) -> bool: ...

    def may_write(self, path: str | Path) -> bool: ...

    def size(self, path: str | Path) -> int | None: ...

    def modified(self, path: str | Path) -> float | None: ...

    def owner(self, path: str | Path) -> int | None:
        """The user id that a file or folder belongs to."""

    def link(self, path: str | Path) -> str | None:
        """What a symbolic link names, e.g. `/proc/PID/exe`."""

    def space(self, path: str | Path) -> Space | None:
        """Of the file system of `path`, or of its nearest parent that exists."""

    def which(self, name: str) -> str | None: ...

    def ask(self, argv: Sequence[str], limit_s: float = ASK_LIMIT_S, env: Mapping[str, str] | None = None) -> Answer:
        """A program's status and output, in `/`, with `env` added to the environment. The same question is put once."""

    def addresses(self, name: str) -> tuple[str, ...]:
        """What a host name resolves to; nothing when it does not."""

    def bind_refusal(self, host: str, port: int) -> str | None:
        """Why one cannot listen there; None when one can. Nothing listens afterwards."""

    def close(self) -> None:
        """End the questions that are still open."""
