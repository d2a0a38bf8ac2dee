"""`--source NAME=PATH`: a checkout or a mirror that is already on this machine. It is read, and never changed.

Not even its index: git is told to take no optional lock, and compares the files through an index of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.errors import BuildError, UsageError
from scripts.gitsource import verification
from scripts.gitsource.git import Git, Repository, failed

_SHOWN = 20


@dataclass(frozen=True)
class Present:
    """A repository that has the revision, and, when it is a checkout, has it checked out.

    `store` is where its objects lie. `changes`: what differs from the revision, submodules included, one line each.
    """

    path: Path
    store: Path
    bare: bool
    revision: str
    submodules: Mapping[str, Present] = field(default_factory=dict)
    changes: tuple[str, ...] = ()

    @property
    def at(self) -> Repository:
        return Repository.foreign(self.path)


def look(git: Git, path: Path, revision: str) -> Present:
    """What lies at `path`. Raises `UsageError` when it is no repository, `BuildError` when it is not the revision."""
    path = path.resolve()
    if not path.is_dir():
        raise UsageError(
            "--source names no folder",
            expected="a checkout or a mirror of the repository",
            found=str(path),
            hint="correct the path, or leave out --source: it is then fetched",
        )
    at = Repository.foreign(path)
    store, bare = _identify(git, at)
    head = _head(git, at)
    if head != revision:
        _refuse_another(git, at, revision, head, bare=bare)
    if bare:
        return Present(path, store, bare, revision)
    submodules = _submodules(git, path, verification.links(verification.entries(git, at, revision)))
    inside = [f"{link}/{line}" for link, each in submodules.items() for line in each.changes]
    return Present(path, store, bare, revision, submodules, (*_changes(git, at, revision), *inside))


def _refuse_another(git: Git, at: Repository, revision: str, head: str, *, bare: bool) -> None:
    """HEAD is not the revision: a mirror has it all the same, or it is refused."""
    quoted = shlex.quote(str(at.folder))
    if git.attempt(at, "cat-file", "-e", f"{revision}^{{commit}}").returncode != 0:
        raise BuildError(
            f"{at.folder} does not have the revision",
            expected=revision,
            found=f"no such commit; HEAD is {head}",
            where=str(at.folder),
            hint=f"git -C {quoted} fetch origin {revision}",
        )
    if not bare:
        raise BuildError(
            f"{at.folder} is at another revision",
            expected=revision,
            found=head,
            where=str(at.folder),
            hint=f"git -C {quoted} checkout --detach {revision}",
        )


def refuse_changes(present: Present) -> None:
    """Raise `BuildError` with the list when the checkout is dirty."""
    if not present.changes:
        return
    lines = present.changes
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise BuildError(
        f"{present.path} is dirty",
        expected=f"exactly the files of {present.revision}",
        found="\n    ".join([f"{len(lines)} paths that differ:", *lines[:_SHOWN], *more]),
        where=str(present.path),
        hint=f"git -C {shlex.quote(str(present.path))} status   # commit or stash it, or build it with --allow-dirty",
    )


def _identify(git: Git, at: Repository) -> tuple[Path, bool]:
    """Where the objects lie, and whether there are no working files."""
    answer = git.attempt(at, "rev-parse", "--is-bare-repository", "--git-dir", "--git-common-dir", "--show-toplevel")
    if answer.returncode != 0 and not re.search("not a git repository|in a work tree", answer.messages):
        raise failed(f"looking into {at.folder}", answer, subject=str(at.folder))
    is_bare, git_dir, common, top = [*answer.text.splitlines(), "", "", "", ""][:4]
    root = git_dir if is_bare == "true" else top
    # Neither a folder inside a checkout nor its .git is what was meant.
    if not root or (at.folder / root).resolve() != at.folder:
        raise UsageError(
            "--source names a folder that is no checkout or mirror of its own",
            expected="the top folder of a checkout, or a bare repository",
            found=str(at.folder),
            hint=f"git -C {shlex.quote(str(at.folder))} rev-parse --show-toplevel",
        )
    return (at.folder / common).resolve(), is_bare == "true"


def _head(git: Git, at: Repository) -> str:
    answer = git.attempt(at, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return answer.text if answer.returncode == 0 else "no commit yet"


def _submodules(git: Git, path: Path, links: Mapping[str, str]) -> dict[str, Present]:
    missing = [f"{link} at {revision}" for link, revision in links.items() if not (path / link / ".git").exists()]
    if missing:
        raise BuildError(
            f"{path} lacks submodules",
            expected="each at its recorded revision",
            found="\n    ".join(["not there:", *missing]),
            where=str(path),
            hint=f"git -C {shlex.quote(str(path))} submodule update --init --recursive",
        )
    return {link: look(git, path / link, revision) for link, revision in sorted(links.items())}


def _changes(git: Git, at: Repository, revision: str) -> list[str]:
    """Every path whose file, or whose entry in the index, is not the revision's; untracked ones, ignored ones not.

    Compared through a new index, which knows no `assume-unchanged` and no sparse checkout, so that each file is read.
    """
    what = f"comparing {at.folder} with the revision"
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": os.fspath(Path(scratch, "index"))}
        git.ask(at, "read-tree", revision, what=what, environ=index)
        status = git.ask(
            at,
            *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=no", "--no-renames"),
            *("--ignore-submodules=all", "--no-ahead-behind"),
            what=what,
            # Git LFS keeps each file that it is shown: not in somebody's checkout.
            settings=(("lfs.storage", scratch),),
            environ=index,
        )
    found = dict.fromkeys(f"{record[:2].strip()} {record[3:]}" for record in status.records())
    staged = git.ask(
        at,
        *("diff-index", "--cached", "--name-only", "--no-renames", "--ignore-submodules=none", "-z", revision),
        what=what,
    )
    named = {line.partition(" ")[2] for line in found}
    return [*found, *(f"staged {path}" for path in staged.records() if path not in named)]
