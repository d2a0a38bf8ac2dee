"""Deletes one item below the project's root, and nothing that is not below it.

Every folder on the way is opened without following links, and what is deleted is named relative to the opened folder:
a link that appears meanwhile leads nowhere. The item gets another name first, by which nobody takes it for whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from scripts.clean.catalogue import ENVIRONMENT, entries
from scripts.publish import PARTIAL_PREFIX

_LATEST = "latest"


def remove(root: Path, item: str) -> None:
    """Delete the file or folder `item`. Raises `OSError`; what could not be deleted has its new name then."""
    path = PurePosixPath(item)
    with _opened(root, path.parent) as folder:
        doomed = path.name if _is_doomed(path.name) else _doomed(path.name)
        if doomed != path.name:
            os.rename(path.name, doomed, src_dir_fd=folder, dst_dir_fd=folder)
        if stat.S_ISDIR(os.stat(doomed, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(doomed, dir_fd=folder)
        else:
            os.unlink(doomed, dir_fd=folder)


def repoint_latest(root: Path) -> None:
    """`runs/latest` leads to the newest run that is left, when it led to one that is not; without any it goes."""
    latest = root / "runs" / _LATEST
    if (root / "runs").is_symlink() or not latest.is_symlink() or latest.exists():
        return
    left = [name for name in entries(root, "runs") if name != _LATEST and _is_folder(root / "runs" / name)]
    if not left:
        latest.unlink()
        return
    new = latest.with_name(f"{PARTIAL_PREFIX}{os.getpid()}-{_LATEST}")
    new.unlink(missing_ok=True)
    new.symlink_to(max(left))
    new.replace(latest)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_doomed(name: str) -> bool:
    return name.startswith((PARTIAL_PREFIX, f"{ENVIRONMENT}{PARTIAL_PREFIX}"))


def _doomed(name: str) -> str:
    """Named for the sweepers of killed commands' leftovers; an environment's name stays one that git ignores."""
    if name.startswith(ENVIRONMENT):
        return f"{ENVIRONMENT}{PARTIAL_PREFIX}{os.getpid()}-{name.removeprefix(ENVIRONMENT)}"
    return f"{PARTIAL_PREFIX}{os.getpid()}-{name}"


@contextlib.contextmanager
def _opened(root: Path, folder: PurePosixPath) -> Iterator[int]:
    """A descriptor of a folder below `root`, reached through folders only."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, here)
        for part in folder.parts:
            if part in {"..", "/"}:
                raise ValueError(f"{folder} leaves the project")
            here = os.open(part, flags, dir_fd=here)
            stack.callback(os.close, here)
        yield here
