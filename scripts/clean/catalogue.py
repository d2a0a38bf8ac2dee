"""Everything that the project's commands are known to leave, and what each piece is. Looks at names and marks only.

Folders are entered only when they are folders: a link may lead out of the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from scripts.clean.needed import Needed
from scripts.install import CONTENTS
from scripts.manifest import MANIFEST_NAME
from scripts.publish import PARTIAL_PREFIX

Scope = Literal["cache", "runs", "all"]

_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_ENGINE_CACHE = re.compile(r"stack-(?P<stack>.+)-[0-9a-f]{12}")
_WHEEL = re.compile(r"[0-9a-f]{64}")
_GIT = re.compile(r"(?P<pin>.+-[0-9a-f]{40})(-history|-dirty-(?P<tree>[0-9a-f]{40}))?")
_MODEL = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}")
_LINK = "a link: what it leads to is not this project's to delete"
_LOOKED_INTO: Mapping[str, Scope] = {
    ".cache": "cache",
    **{f".cache/{name}": "cache" for name in ("sources", "git", "built", "compile", "models", "repro", "state")},
    "runs": "runs",
    "dist": "all",
    ".nox": "all",
}
ENVIRONMENT = ".venv-"
STACK_FILE = "stack.json"
VERDICT_FILE = "verdict.json"
EVENTS_FILE = "events.jsonl"
_ANY_BUILD = ("*.lock",)


@dataclass(frozen=True)
class Item:
    """One file or folder, by its path from the project's root, and what it is.

    `locks` are patterns of names in `.cache/locks/`: whoever works with the item holds one of them. `needed` says what
    still needs it, `untouchable` why it stays in any case.
    """

    path: str
    scope: Scope
    what: str
    locks: tuple[str, ...] = ()
    needed: str | None = None
    untouchable: str | None = None

    @property
    def why(self) -> str:
        return self.what if self.needed is None else f"{self.what}, {self.needed}"

    @property
    def is_run(self) -> bool:
        return self.scope == "runs"


def catalogue(root: Path, needed: Needed) -> list[Item]:
    """All items, sorted by path. Links stay: whoever made one knows what it is for."""
    found = [*_folders(root), *_cache(root, needed), *_runs(root), *_made(root, needed), *_interrupted(root)]
    linked = [replace(item, untouchable=_LINK) if (root / item.path).is_symlink() else item for item in found]
    return sorted(linked, key=lambda item: item.path)


def entries(root: Path, folder: str) -> list[str]:
    """Names of what is whole in a folder; nothing when it, or a folder above it, is not there or is a link."""
    return [name for name in _names(root, folder) if not name.startswith(PARTIAL_PREFIX)]


def _names(root: Path, folder: str) -> list[str]:
    place = root
    for part in Path(folder).parts:
        place /= part
        if place.is_symlink() or not place.is_dir():
            return []
    return sorted(path.name for path in place.iterdir())


def _folders(root: Path) -> Iterator[Item]:
    """The folders that would be looked into, where they are links."""
    for folder, scope in _LOOKED_INTO.items():
        if (root / folder).is_symlink():
            yield Item(folder, scope, "a link")


def _cache(root: Path, needed: Needed) -> Iterator[Item]:
    for name in entries(root, ".cache/sources"):
        if _WHEEL.fullmatch(name):
            yield _pinned(f".cache/sources/{name}", "a published wheel", needed.wheels.get(name), needed)
    for name in entries(root, ".cache/git"):
        source = _GIT.fullmatch(name)
        if source is not None:
            # What was copied from a dirty checkout is no revision: nothing pins it.
            pin = needed.git.get(source["pin"]) if source["tree"] is None else None
            yield _pinned(f".cache/git/{name}", "a git source", pin, needed)
    for name in entries(root, ".cache/built"):
        yield Item(f".cache/built/{name}", "cache", "products of a build", _ANY_BUILD, needed.built.get(name))
    for name in entries(root, ".cache/compile"):
        yield Item(f".cache/compile/{name}", "cache", "where a build worked", (f"{name}.lock",))
    for name in entries(root, ".cache/models"):
        yield _model(name, needed)
    for name in entries(root, ".cache"):
        engine = _ENGINE_CACHE.fullmatch(name)
        if engine is not None:
            kept = needed.engines.get(name)
            what = "caches of an engine" if kept else "caches of a former build's engine"
            yield Item(f".cache/{name}", "cache", what, _users(engine["stack"]), kept)
        elif name == "logs":
            yield Item(".cache/logs", "cache", "logs of former builds and installs", _ANY_BUILD)


def _pinned(path: str, what: str, pin: str | None, needed: Needed) -> Item:
    kept = pin or needed.unreadable
    return Item(path, "cache", what if kept else f"{what} that no stack file pins", _ANY_BUILD, kept)


def _model(name: str, needed: Needed) -> Item:
    """A model of a pinned one's name with another digest was replaced by it; the others are made and used by runs."""
    path, locks = f".cache/models/{name}", ("*.lock", "*.in-use")
    recipes = {each.rpartition("-")[0] for each in needed.models}
    if _MODEL.fullmatch(name) and name.rpartition("-")[0] in recipes:
        return replace(_pinned(path, "a model", needed.models.get(name), needed), locks=locks)
    return Item(path, "all", "made by a run; the next one makes it again", locks)


def _runs(root: Path) -> Iterator[Item]:
    for name in entries(root, "runs"):
        folder = root / "runs" / name
        ours = _RUN.fullmatch(name) or (folder / EVENTS_FILE).is_file()
        if folder.is_symlink() or not folder.is_dir() or not ours:
            continue
        standing = None
        if (folder / STACK_FILE).exists() or (folder / STACK_FILE).is_symlink():
            standing = f"its stack is not taken down: ./noxw -s status, ./noxw -s down -- --run-dir runs/{name}"
        yield Item(f"runs/{name}", "runs", "a run that has ended", untouchable=standing)


def _made(root: Path, needed: Needed) -> Iterator[Item]:
    for name in entries(root, "dist"):
        if name in needed.stacks or (root / "dist" / name / MANIFEST_NAME).is_file():
            yield Item(f"dist/{name}", "all", "artifacts; ./noxw -s build makes them again", _users(name))
    for name in entries(root, ""):
        if name.startswith(ENVIRONMENT) and not name.startswith(f"{ENVIRONMENT}{PARTIAL_PREFIX}"):
            stack = name.removeprefix(ENVIRONMENT)
            if stack in needed.stacks or (root / name / CONTENTS).is_file():
                yield Item(name, "all", "an environment; ./noxw -s install makes it again", _users(stack))
    for name in entries(root, ".cache"):
        if name.endswith("-artifacts.txt"):
            yield Item(
                f".cache/{name}", "all", "what an install was told", (f"{name.removesuffix('-artifacts.txt')}.lock",)
            )
    for name in entries(root, ".cache/state"):
        yield Item(f".cache/state/{name}", "all", "what was built into dist", (f"{Path(name).stem}.lock",))
    if "payload-tests" in entries(root, ".nox"):
        yield Item(".nox/payload-tests", "all", "the payload's test tools; ./noxw -s test makes them again")


def _interrupted(root: Path) -> Iterator[Item]:
    """What killed commands left: nobody takes it for whole, and its maker's pid is in its name."""
    for folder, scope in _LOOKED_INTO.items():
        for name in _names(root, folder):
            if name.startswith(PARTIAL_PREFIX):
                yield _left(f"{folder}/{name}", name.removeprefix(PARTIAL_PREFIX), scope)
    for name in _names(root, ""):
        if name.startswith(f"{ENVIRONMENT}{PARTIAL_PREFIX}"):
            yield _left(name, name.removeprefix(f"{ENVIRONMENT}{PARTIAL_PREFIX}"), "cache")


def _left(path: str, rest: str, scope: Scope) -> Item:
    pid = rest.partition("-")[0]
    alive = pid.isdecimal() and Path("/proc", pid).exists()
    return Item(
        path, scope, "left by a command that was killed", untouchable=f"pid {pid} works on it" if alive else None
    )


def _users(stack: str) -> tuple[str, ...]:
    return (f"{stack}.lock", f"{stack}.in-use")
