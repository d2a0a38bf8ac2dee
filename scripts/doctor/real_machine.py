"""The machine at hand, as the doctor's checks may ask it."""

from __future__ import annotations

import os
import platform
import pwd
import resource
import shutil
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts import jobs
from scripts.doctor import asking
from scripts.doctor.asking import Answer
from scripts.doctor.machine import ASK_LIMIT_S, READ_LIMIT, Space
from scripts.jobs import Resources

READ_AT_ONCE = 1 << 18


class RealMachine:
    """It implements `machine.Machine`."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._questions = asking.Questions()
        self._answers: dict[object, Answer] = {}
        self._locks: dict[object, threading.Lock] = {}
        self._mutex = threading.Lock()

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    @property
    def home(self) -> str:
        return self._environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir

    def system(self) -> str:
        return platform.system()

    def architecture(self) -> str:
        return platform.machine()

    def libc(self) -> str:
        try:
            return os.confstr("CS_GNU_LIBC_VERSION") or ""
        except (ValueError, OSError):
            return ""

    def python_version(self) -> tuple[int, int, int]:
        major, minor, micro = platform.python_version_tuple()
        return int(major), int(minor), int("".join(c for c in micro if c.isdigit()) or 0)

    def user_id(self) -> int:
        return os.getuid()

    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    def resources(self) -> Resources:
        return jobs.available()

    def now(self) -> float:
        return time.time()

    def locale_encoding(self) -> str:
        return asking.locale_encoding(self._environ)

    def open_files_limit(self) -> tuple[int, int]:
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    def read_text(self, path: str | Path) -> str | None:
        try:
            with open(path, "rb", buffering=0) as handle:  # noqa: PTH123 - text or path
                # The kernel refuses to fill a large buffer from some files of /proc/sys.
                content = bytearray()
                while len(content) < READ_LIMIT and (part := handle.read(READ_AT_ONCE)):
                    content += part
                return content.decode("utf-8", errors="replace")
        except OSError:
            return None

    def entries(self, path: str | Path) -> tuple[str, ...] | None:
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - the names are what is asked for
        except OSError:
            return None

    def exists(self, path: str | Path) -> bool:
        return os.path.exists(path)  # noqa: PTH110 - it never raises

    def is_dir(self, path: str | Path) -> bool:
        return os.path.isdir(path)  # noqa: PTH112 - it never raises

    def may_write(self, path: str | Path) -> bool:
        return os.access(path, os.W_OK | os.X_OK if self.is_dir(path) else os.W_OK)

    def size(self, path: str | Path) -> int | None:
        status = _stat(path)
        return None if status is None else status.st_size

    def modified(self, path: str | Path) -> float | None:
        status = _stat(path)
        return None if status is None else status.st_mtime

    def owner(self, path: str | Path) -> int | None:
        status = _stat(path)
        return None if status is None else status.st_uid

    def link(self, path: str | Path) -> str | None:
        try:
            return os.readlink(path)  # noqa: PTH115 - text is what is asked for
        except OSError:
            return None

    def space(self, path: str | Path) -> Space | None:
        place = Path(path)
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            status = os.statvfs(place)
        except OSError:
            return None
        return Space(
            path=str(place),
            total=status.f_frsize * status.f_blocks,
            free=status.f_frsize * status.f_bavail,
            read_only=bool(status.f_flag & os.ST_RDONLY),
            noexec=bool(status.f_flag & os.ST_NOEXEC),
            files_free=status.f_favail if status.f_files else None,
        )

    def which(self, name: str) -> str | None:
        return shutil.which(name, path=self._environ.get("PATH", os.defpath))

    def ask(self, argv: Sequence[str], limit_s: float = ASK_LIMIT_S, env: Mapping[str, str] | None = None) -> Answer:
        question = (tuple(argv), tuple(sorted((env or {}).items())))
        with self._mutex:
            lock = self._locks.setdefault(question, threading.Lock())
        with lock:
            if question not in self._answers:
                self._answers[question] = self._questions.ask(argv, {**self._environ, **(env or {})}, limit_s)
            return self._answers[question]

    def addresses(self, name: str) -> tuple[str, ...]:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError:
            return ()
        return tuple(sorted({str(entry[4][0]) for entry in found}))

    def bind_refusal(self, host: str, port: int) -> str | None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
        return None

    def close(self) -> None:
        self._questions.close()


def _stat(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - text or path
    except OSError:
        return None
