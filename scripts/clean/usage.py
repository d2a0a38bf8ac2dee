"""Who works with the project now: locks that commands hold, and files that processes have open."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from scripts.clean.catalogue import VERDICT_FILE, Item
from scripts.exclusion import holders

_SHOWN = 3


@dataclass(frozen=True)
class Usage:
    """What is in use. `held` has each lock that is not free, with its holders; `opened` is a path and a pid each."""

    root: Path
    held: dict[str, list[str]]
    opened: list[tuple[str, int]]

    @classmethod
    @contextlib.contextmanager
    def of(cls, root: Path, *, taking: bool) -> Iterator[Usage]:
        """Look once. With `taking` the free locks are held for the block, so that nobody begins to work meanwhile."""
        with contextlib.ExitStack() as stack:
            held = {}
            for name in _lock_names(root, all_of_them=taking):
                path = root / ".cache" / "locks" / name
                if not _taken(stack, path, keep=taking):
                    held[name] = holders(path) or ["a process of another user"]
            yield cls(root, held, list(_opened(os.path.realpath(root))))

    def reason(self, item: Item) -> str | None:
        """Why an item must not be touched now; None when nobody works with it."""
        path = self.root / item.path
        # Everything of it is another user's, whose processes cannot be seen.
        if os.geteuid() not in {0, path.lstat().st_uid}:
            return "it belongs to another user"
        inside = f"{os.path.realpath(self.root)}/{item.path}"
        pids = sorted({pid for opened, pid in self.opened if opened == inside or opened.startswith(f"{inside}/")})
        if pids:
            return f"in use by {', '.join(f'pid {pid}' for pid in pids[:_SHOWN])}"
        for name, users in self.held.items():
            if any(fnmatch(name, pattern) for pattern in item.locks):
                return f"{name} is held by {'; '.join(users[:_SHOWN])}"
        if item.is_run and not (path / VERDICT_FILE).exists():
            return self._maybe_at_work()
        return None

    def _maybe_at_work(self) -> str | None:
        """A run without a verdict may be the one that holds an environment: of another user, or in a container."""
        users = [f"{name} is held by {'; '.join(by[:_SHOWN])}" for name, by in self.held.items() if ".in-use" in name]
        return f"it has no verdict yet, and {users[0]}" if users else None


def _lock_names(root: Path, *, all_of_them: bool) -> list[str]:
    """The locks that there are; and with `all_of_them` those that a command would make for a stack."""
    folder = root / ".cache" / "locks"
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if all_of_them:
        stacks = [path.parent.name for path in (root / "stacks").glob("*/stack.toml")]
        found |= {f"{stack}{end}" for stack in stacks for end in (".lock", ".in-use")}
    return sorted(name for name in found if name.endswith((".lock", ".in-use")))


def _taken(stack: contextlib.ExitStack, path: Path, *, keep: bool) -> bool:
    """Whether the lock was free; it is kept until the stack is closed, or let go at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle: IO[str] = stack.enter_context(path.open("a+", encoding="utf-8"))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if not keep:
        handle.close()
    elif path.suffix == ".lock":
        # Those who wait for it say whom they wait for.
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
    return True


def _opened(root: str) -> Iterator[tuple[str, int]]:
    """Every path below `root` that a process has open, maps, runs or stands in."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            for path in _paths(entry):
                if path.startswith(f"{root}/"):
                    yield path, int(entry.name)


def _paths(process: Path) -> Iterator[str]:
    # Processes and their files come and go while one looks, and those of other users may not be looked at.
    gone = contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError)
    for name in ("cwd", "exe"):
        with gone:
            yield os.readlink(process / name)  # noqa: PTH115 - not a path of ours, and may be anything
    with gone:
        for handle in (process / "fd").iterdir():
            with gone:
                yield os.readlink(handle)  # noqa: PTH115
    with gone:
        for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            _, slash, path = line.partition("/")
            yield f"{slash}{path}"
