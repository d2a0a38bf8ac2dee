"""The copy of a dirty checkout: the working files as they are, in a place of their own.

What git ignores is left behind, as it would be in a clean build. Reads the checkout and writes only the copy.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from scripts.errors import BuildError
from scripts.gitsource.copying import copy_file, copy_tree
from scripts.gitsource.git import Git
from scripts.gitsource.present import Present


def copy(git: Git, present: Present, clean: Path, target: Path) -> None:
    """Make `target`: the repositories of the `clean` checkout with the working files of the `present` one."""
    target.mkdir(parents=True, exist_ok=True)
    copy_tree(clean / ".git", target / ".git")
    for path in _files(git, present):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        copy_file(present.path / path, target / path)
    for link, submodule in present.submodules.items():
        copy(git, submodule, clean / link, target / link)


def _files(git: Git, present: Present) -> list[str]:
    """The files that git knows or would show as untracked, and that are there."""
    listed = git.ask(
        present.at,
        *("ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        what=f"listing the files of {present.path}",
    ).records()
    files, repositories = [], []
    for path in sorted(set(listed)):
        if path.rstrip("/") in present.submodules:
            continue
        kind = _kind(present.path, path)
        if kind == "repository":
            repositories.append(path)
        elif kind == "file":
            files.append(path)
    if repositories:
        raise BuildError(
            f"{present.path} has repositories inside that are not its submodules",
            expected="files that can be copied",
            found=", ".join(repositories),
            where=str(present.path),
            hint=f"echo /{repositories[0].rstrip('/')}/ >> {shlex.quote(str(present.store / 'info' / 'exclude'))}",
        )
    return files


def _kind(root: Path, path: str) -> str:
    """What is there now. A name in the index may be that of a file that is gone, or have become a folder's."""
    there = root / path
    if any((root / parent).is_symlink() for parent in Path(path).parents):
        return "nothing"  # the link is copied, and what it leads to is not a part of the checkout
    if there.is_dir() and not there.is_symlink():
        return "repository" if (there / ".git").exists() else "folder"
    return "file" if there.is_symlink() or there.exists() else "nothing"
