"""The run's scratch folder, on a path short enough for the Unix sockets that the stack's programs make in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DoctorError
from harness.rundir import cannot_write

SOCKET_PATH_LIMIT = 107
"""Bytes in the path of a Unix socket, its final zero not counted; see unix(7)."""

LONGEST_SOCKET_NAME = 48
"""vLLM's sockets are called by a UUID (36) or `vllm-rs-i-` and 32 digits (42); a little room is left."""

_PREFIX = "smokestack-"
_RUN_FILE = "run-id"
_KEEP_FILE = "standing"
_RANDOM_CHARACTERS = 8
_SHORT = Path("/tmp")


@dataclass(frozen=True)
class Scratch:
    """A folder of this run alone."""

    path: Path

    def mark(self, run_id: str) -> None:
        """Put down whose it is. Raises `DoctorError` when that cannot be written."""
        self._write(_RUN_FILE, run_id)

    def belongs_to(self, run_id: str) -> bool:
        """Whether this is a scratch folder that was marked for that run: nothing else may be removed on its behalf."""
        if self.path.is_symlink() or not self.path.name.startswith(_PREFIX):
            return False
        try:
            return (self.path / _RUN_FILE).read_text(encoding="utf-8") == run_id
        except (OSError, UnicodeDecodeError):
            return False

    @property
    def kept(self) -> bool:
        """Whether it outlives its session, since a standing stack needs it."""
        return (self.path / _KEEP_FILE).exists()

    def keep(self) -> None:
        """Let it outlive its session. Raises `DoctorError` when that cannot be written."""
        self._write(_KEEP_FILE, "")

    def keep_no_longer(self) -> None:
        (self.path / _KEEP_FILE).unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        try:
            (self.path / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise cannot_write(self.path / name, error) from error

    def leftovers(self) -> list[str]:
        """The folder and what is in it, as paths; empty when it has gone."""
        return [str(self.path), *sorted(str(path) for path in self.path.rglob("*"))] if self.path.exists() else []

    def remove(self) -> list[str]:
        """Remove it with all that is in it. Returns the paths that could not be removed."""
        shutil.rmtree(self.path, ignore_errors=True)
        return self.leftovers()


def make_scratch(caller: Mapping[str, str], *, short: Path = _SHORT) -> Scratch:
    """A new scratch folder in the caller's TMPDIR if sockets fit there, else in `short`.

    A TMPDIR with white space is passed over too: not every program of the stack quotes its paths. Raises `DoctorError`
    when no place will do.
    """
    wanted = Path(caller.get("TMPDIR") or short)
    parent = next((place for place in (wanted, short) if _fits(place)), None)
    if parent is None:
        raise DoctorError(
            "no temporary folder with a short path",
            expected=f"a folder whose path has at most {_longest_parent()} bytes and no white space",
            found=f"{wanted} ({len(bytes(wanted))} bytes)",
            where=str(wanted),
            hint="set TMPDIR to a folder with a shorter path",
        )
    try:
        return Scratch(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)))
    except OSError as error:
        raise DoctorError(
            f"the temporary folder {parent} cannot be used: {error.strerror}",
            expected="a folder with room, where this user may write",
            found=f"{error.strerror} ({parent})",
            where=str(parent),
            hint="set TMPDIR to such a folder, or unset it",
        ) from error


def _fits(parent: Path) -> bool:
    text = str(parent)
    return parent.is_absolute() and len(bytes(parent)) <= _longest_parent() and not any(map(str.isspace, text))


def _longest_parent() -> int:
    made = len(_PREFIX) + _RANDOM_CHARACTERS
    return SOCKET_PATH_LIMIT - LONGEST_SOCKET_NAME - 1 - made - 1
