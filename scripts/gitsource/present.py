"""`--source NAME=PATH`: a checkout or a mirror that is already on this machine. It is read, and never changed.

Not even its index: git is told to take no optional lock, and compares the files through an index of its own.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.errors import BuildError, UsageError
from scripts.gitsource.git import Git, Repository, failed
from scripts.gitsource.verification import Facts, read

_SHOWN = 20


@dataclass(frozen=True)
class Present:
    """A repository that has the revision, and, when it is a checkout, has it checked out.

    `store` is where its objects lie. `changes`: what differs from the revision, submodules included, one line each.
    """

    path: Path
    store: Path
    bare: bool
    facts: Facts
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
            "--source names no folder", expected="a checkout or a mirror of the repository", found=str(path)
        )
    at = Repository.foreign(path)
    store, bare = _identify(git, at)
    quoted = shlex.quote(str(path))
    if git.attempt(at, "cat-file", "-e", f"{revision}^{{commit}}").returncode != 0:
        raise BuildError(
            f"{path} does not have the revision",
            expected=revision,
            found=f"no such commit; HEAD is {_head(git, at)}",
            where=str(path),
            hint=f"git -C {quoted} fetch origin {revision}",
        )
    if bare:
        return Present(path, store, bare, read(git, at, revision))
    head = _head(git, at)
    if head != revision:
        raise BuildError(
            f"{path} is at another revision",
            expected=revision,
            found=head,
            where=str(path),
            hint=f"git -C {quoted} checkout --detach {revision}",
        )
    facts = read(git, at, revision)
    submodules = _submodules(git, path, facts)
    inside = [f"{link}/{line}" for link, each in submodules.items() for line in each.changes]
    return Present(path, store, bare, facts, submodules, (*_changes(git, at, revision), *inside))


def refuse_changes(present: Present) -> None:
    """Raise `BuildError` with the list when the checkout is dirty."""
    if not present.changes:
        return
    lines = present.changes
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise BuildError(
        f"{present.path} is dirty",
        expected=f"exactly the files of {present.facts.revision}",
        found="\n    ".join([f"{len(lines)} paths that differ:", *lines[:_SHOWN], *more]),
        where=str(present.path),
        hint=f"git -C {shlex.quote(str(present.path))} status   # commit or stash it, or build it with --allow-dirty",
    )


def _identify(git: Git, at: Repository) -> tuple[Path, bool]:
    """Where the objects lie, and whether there are no working files."""
    answer = git.attempt(at, "rev-parse", "--is-bare-repository", "--git-dir", "--git-common-dir")
    if answer.returncode != 0 and "not a git repository" not in answer.messages:
        raise failed(f"looking into {at.folder}", answer, subject=str(at.folder))
    is_bare, git_dir, common = answer.text.splitlines() if answer.returncode == 0 else ("", "", "")
    root = git_dir if is_bare == "true" else git.attempt(at, "rev-parse", "--show-toplevel").text
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


def _submodules(git: Git, path: Path, facts: Facts) -> dict[str, Present]:
    missing = [f"{link} at {revision}" for link, revision in facts.links.items() if not (path / link / ".git").exists()]
    if missing:
        raise BuildError(
            f"{path} lacks submodules",
            expected="each at its recorded revision",
            found="\n    ".join(["not there:", *missing]),
            where=str(path),
            hint=f"git -C {shlex.quote(str(path))} submodule update --init --recursive",
        )
    return {link: look(git, path / link, revision) for link, revision in sorted(facts.links.items())}


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
