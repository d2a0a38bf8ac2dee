"""`obtain`: a source at its revision into `.cache/git/`, once; verified again whenever it is used.

`<name>-<revision>` has the revision alone, `<name>-<revision>-history` its history and tags too, and
`<name>-<revision>-dirty-<tree>` the files of a dirty checkout. Each appears whole, by a rename, and is never changed.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.console import Console
from scripts.errors import BuildError, DoctorError, PinError
from scripts.exclusion import exclusive
from scripts.gitsource import dirty, present, tags, trees, verification
from scripts.gitsource.checkout import Checkout
from scripts.gitsource.fetching import Origin, fetch
from scripts.gitsource.git import Git, Repository
from scripts.gitsource.present import Present
from scripts.gitsource.submodules import has_secret
from scripts.gitsource.verification import Verified
from scripts.layout import Layout
from scripts.publish import publishing, remove, sweep_partials
from scripts.stackfile import GitSource

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHORT = 12
"""Digits of a revision that is shown to a person who works with it; errors have all of it."""

_POINTERS_SHOWN = 5


@dataclass(frozen=True)
class _Wanted:
    """One repository to have in the cache."""

    layout: Layout
    name: str
    repository: str
    revision: str
    history: bool

    @property
    def entry(self) -> str:
        return f"{self.name}-{self.revision}{'-history' if self.history else ''}"

    @property
    def folder(self) -> Path:
        return self.layout.cache / "git" / self.entry

    @property
    def git(self) -> Git:
        return Git(self.layout.logs, self.entry)

    @property
    def title(self) -> str:
        return f"{self.name} {self.revision[:_SHORT]}"


def obtain(
    layout: Layout,
    name: str,
    source: GitSource,
    console: Console,
    *,
    given: Path | None = None,
    allow_dirty: bool = False,
    tags: bool = True,
) -> Checkout:
    """The source at its revision, verified, in the cache; with the nested sources that the stack pins.

    `tags` is False for a source that takes its version from its own files: its history is then not asked for.

    `given` is a checkout or a mirror on this machine to take it from. A dirty checkout is refused, or, with
    `allow_dirty`, copied as it is. Raises `PinError` for a revision that is not a full one, `UsageError` for a `given`
    that is no repository, `DoctorError` without git, and `BuildError` for everything that is not as recorded.
    """
    wanted = _Wanted(layout, name, source.repository, source.revision, history=tags and source.version is None)
    _refuse_inexact(wanted)
    for each, pin in source.nested.items():
        _refuse_inexact(_Wanted(layout, each, pin.repository, pin.revision, history=False))
    checkout = _one(wanted, console, given, allow_dirty=allow_dirty)
    nested: dict[str, Checkout] = {
        each: _one(_Wanted(layout, f"{name}.{each}", pin.repository, pin.revision, history=False), console)
        for each, pin in sorted(source.nested.items())
    }
    return replace(checkout, version=source.version, nested=nested)


def _refuse_inexact(wanted: _Wanted) -> None:
    if shutil.which("git") is None:
        raise DoctorError("git is not installed", expected="git 2.25 or newer", hint="apt-get install git")
    if not _NAME.fullmatch(wanted.name):
        raise PinError("a source's name becomes a folder's", expected="such as vllm or my-fork", found=wanted.name)
    if not _REVISION.fullmatch(wanted.revision):
        raise PinError(
            f"the revision of {wanted.name} is not a full one: a server does not serve an abbreviated id,"
            " and one that is unique today can become ambiguous",
            expected="a full revision: 40 lower-case hex digits",
            found=f"{wanted.revision!r} ({len(wanted.revision)} characters)",
            hint=f"git rev-parse {wanted.revision}   # in a clone of it",
        )
    if has_secret(wanted.repository):
        raise PinError(
            f"the repository of {wanted.name} has a password or token in its address",
            expected="an address that may be written into logs and manifests",
            hint="git config --global credential.helper store   # keep the credential there",
        )


def _one(wanted: _Wanted, console: Console, given: Path | None = None, *, allow_dirty: bool = False) -> Checkout:
    mutex = wanted.layout.cache / "locks" / f"git-{wanted.entry}.lock"
    with exclusive(mutex, console, what=f"build that fetches {wanted.title}"):
        there = None if given is None else present.look(wanted.git, given, wanted.revision)
        if there is not None and not allow_dirty:
            present.refuse_changes(there)
        tagged = None if there is None else _described(wanted, there.at, str(there.path), fetchable=True)
        sweep_partials(wanted.folder.parent)
        verified, described = _cached(wanted, console) or _fetched(wanted, there, console)
        if there is not None and tagged != described:
            raise _other_tags(wanted, there, tagged, described)
        checkout = Checkout(
            name=wanted.name,
            repository=wanted.repository,
            revision=wanted.revision,
            tree=verified.facts.tree,
            epoch=verified.facts.epoch,
            version=None,
            dirty=False,
            submodules=verified.submodules,
            path=wanted.folder,
            described=described,
        )
        if there is None or not there.changes:
            return checkout
        return _copied(wanted, there, checkout, console)


def _cached(wanted: _Wanted, console: Console) -> tuple[Verified, str | None] | None:
    """What the cache has, if that is still what was put there."""
    if not wanted.folder.exists():
        return None
    try:
        verified = verification.check(wanted.git, wanted.folder, wanted.revision)
        described = _described(wanted, Repository.own(wanted.folder), str(wanted.folder), fetchable=False)
    except BuildError as spoiled:
        console.say(
            f"  {wanted.title}: {wanted.folder.name} is not what was put there, and is fetched again: {spoiled}"
        )
        remove(wanted.folder)
        return None
    console.cached(f"fetch {wanted.title}")
    return verified, described


def _fetched(wanted: _Wanted, there: Present | None, console: Console) -> tuple[Verified, str | None]:
    origin = Origin(wanted.repository, there)
    step = console.step(f"fetch {wanted.title} from {wanted.repository if there is None else there.path}")
    with step, publishing(wanted.folder) as partial:
        fetch(wanted.git, partial, origin, wanted.revision, history=wanted.history)
        verified = verification.check(wanted.git, partial, wanted.revision)
        described = _described(wanted, Repository.own(partial), wanted.repository, fetchable=False)
    pointers = trees.lfs_pointers(wanted.folder, verified.facts.entries)
    if pointers:
        shown = [*pointers[:_POINTERS_SHOWN], *(["…"] if len(pointers) > _POINTERS_SHOWN else [])]
        console.say(
            f"  {wanted.title}: not fetched, as Git LFS keeps the contents (files: {len(pointers)}): {', '.join(shown)}"
        )
    return verified, described


def _described(wanted: _Wanted, at: Repository, where: str, *, fetchable: bool) -> str | None:
    """The version's facts, where the version comes from tags."""
    if not wanted.history:
        return None
    return tags.described(wanted.git, at, wanted.revision, name=wanted.name, where=where, fetchable=fetchable)


def _other_tags(wanted: _Wanted, there: Present, tagged: str | None, described: str | None) -> BuildError:
    return BuildError(
        f"the tags of {there.path} give {wanted.name} another version than those fetched before",
        expected=described,
        found=tagged,
        where=str(there.path),
        hint=f"rm -r {shlex.quote(str(wanted.folder))}   # to take it from there; or pin `version` in stack.toml",
    )


def _copied(wanted: _Wanted, there: Present, clean: Checkout, console: Console) -> Checkout:
    """A copy of the dirty working files, in a folder that is named by the tree that they make."""
    console.say(
        f"  {wanted.title}: {there.path} is dirty (paths that differ: {len(there.changes)}), and is copied as it is"
    )
    submodules = [each.path for each in clean.submodules]
    unnamed = wanted.folder.with_name(f"{wanted.entry}-dirty")
    remove(unnamed)
    with console.step(f"copy {there.path}"), publishing(unnamed) as partial:
        dirty.copy(wanted.git, there, clean.path, partial)
        tree = verification.flattened(partial, submodules)
    named = wanted.folder.with_name(f"{wanted.entry}-dirty-{tree}")
    remove(named)
    unnamed.replace(named)
    return replace(clean, tree=tree, dirty=True, path=named)
