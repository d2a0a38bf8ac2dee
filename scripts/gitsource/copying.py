"""Copies of files that share nothing with what they were copied from: no hard link, no mode of the caller's umask."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from scripts.errors import BuildError

_GIT = ".git"


def copy_tree(source: Path, target: Path) -> None:
    """All of a folder. Links stay links; the first file that cannot be written ends it."""
    target.mkdir()
    with os.scandir(source) as items:
        for item in items:
            if item.is_dir(follow_symlinks=False):
                copy_tree(Path(item.path), target / item.name)
            else:
                copy_file(Path(item.path), target / item.name)


def copy_file(source: Path, target: Path) -> None:
    """One file or link; of its mode only whether its owner may execute it."""
    mode = source.lstat().st_mode
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(mode):
        shutil.copyfile(source, target)
        target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
    else:
        raise BuildError("neither a file, a folder nor a link: it cannot be copied", where=str(source))


def settle(folder: Path, epoch: int) -> None:
    """The same modes and times for the same files, whoever copied them when. What is in a `.git` is git's business."""
    with os.scandir(folder) as items:
        for item in items:
            if item.name == _GIT:
                continue
            if item.is_dir(follow_symlinks=False):
                settle(Path(item.path), epoch)
            else:
                os.utime(item.path, (epoch, epoch), follow_symlinks=False)
    folder.chmod(0o755)
    os.utime(folder, (epoch, epoch))
