"""Is a checkout made here still the revision, byte for byte? From the commit's id down to every file.

The revision is the hash of the commit, which names its tree; and the tree's id is worked out anew from the working
files. A submodule is judged in the same way, by the revision in its parent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import BuildError
from scripts.gitsource import trees
from scripts.gitsource.checkout import Submodule
from scripts.gitsource.git import Git, Repository
from scripts.gitsource.trees import SUBMODULE, Entry

_SHOWN = 20
_COMMIT = re.compile(
    rb"tree (?P<tree>[0-9a-f]{40})\n(?:(?!committer )[^\n]+\n)*committer [^\n]*> (?P<seconds>[0-9]+) [+-][0-9]{4}\n"
)


@dataclass(frozen=True)
class Facts:
    """What a revision is, by its own record. `entries`: all its files, links and submodules, by path."""

    revision: str
    tree: str
    epoch: int
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Verified:
    """A checkout that is what it should be. `submodules` are all, those of submodules included."""

    facts: Facts
    submodules: tuple[Submodule, ...]


def read(git: Git, at: Repository, revision: str) -> Facts:
    """What the repository has under `revision`. Raises `BuildError` when it lacks it, or it is damaged."""
    commit = git.ask(at, "cat-file", "commit", revision, what=f"reading the revision {revision}").output
    found = trees.commit_id(commit)
    if found != revision:
        raise BuildError("the repository has another commit under this id", expected=revision, found=found)
    head = _COMMIT.match(commit)
    if head is None:
        raise BuildError(f"{revision} does not say when it was committed, or names no tree", where=str(at.folder))
    return Facts(revision, head["tree"].decode(), int(head["seconds"]), entries(git, at, revision))


def entries(git: Git, at: Repository, revision: str) -> dict[str, Entry]:
    """All files, links and submodules of a revision, by path."""
    listed = git.ask(at, "ls-tree", "-r", "-z", "--full-tree", revision, what=f"listing the files of {revision}")
    return dict(_entry(record) for record in listed.records())


def links(entries: Mapping[str, Entry]) -> dict[str, str]:
    """The submodules among the entries: path -> revision."""
    return {path: entry.oid for path, entry in entries.items() if entry.mode == SUBMODULE}


def check(git: Git, folder: Path, revision: str) -> Verified:
    """The checkout in `folder`, verified with all its submodules. Raises `BuildError` that names what is not right."""
    head = _head(folder)
    if head != revision:
        raise BuildError("HEAD is another revision", expected=revision, found=head, where=str(folder))
    facts = read(git, Repository.own(folder), revision)
    recorded = links(facts.entries)
    found = trees.listing(folder, recorded)
    wrong = trees.differences(facts.entries, found)
    if wrong or trees.tree_id(found) != facts.tree:
        raise _unlike(folder, facts, found, wrong)
    submodules = []
    for path, link in sorted(recorded.items()):
        submodules.append(Submodule(path, link))
        below = check(git, folder / path, link).submodules
        submodules += [Submodule(f"{path}/{each.path}", each.revision) for each in below]
    return Verified(facts, tuple(submodules))


def flattened(folder: Path, submodules: list[str]) -> str:
    """The id of the tree that has everything in `folder`, and the files of submodules in their places."""
    return trees.tree_id(trees.listing(folder, {}, ["", *submodules]))


def _head(folder: Path) -> str:
    """HEAD of a checkout made here, which is on no branch."""
    try:
        return (folder / ".git" / "HEAD").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return "no repository"


def _unlike(folder: Path, facts: Facts, found: dict[str, Entry], wrong: list[str]) -> BuildError:
    if not wrong:
        # Modes such as 100664, of the first years of git, are shown as those of today.
        wrong = ["nothing by name: the revision's trees have modes that git writes no more"]
    shown = [*wrong[:_SHOWN], *([f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else [])]
    return BuildError(
        f"the working files are not those of {facts.revision}",
        expected=f"the tree {facts.tree}",
        found="\n    ".join([f"the tree {trees.tree_id(found)}", *shown]),
        where=str(folder),
    )


def _entry(record: str) -> tuple[str, Entry]:
    meta, _, path = record.partition("\t")
    mode, _, oid = meta.split(" ")
    return path, Entry(mode, oid)
