"""Where the builds happen: project folders of their own below `.cache/repro/`, which go away whatever happens."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from scripts import commands
from scripts.digests import source_files
from scripts.environ import child_environment
from scripts.errors import BuildError
from scripts.layout import Layout
from scripts.publish import PARTIAL_PREFIX, remove, sweep_partials
from scripts.repro.conditions import Conditions
from scripts.stackfile import Stack

# What a build reads of a project folder; the rest (the run plane, tests, documents) is no input of it.
_FOLDERS = ("stacks", "scripts", "harness/payload")
_FILES = ("pyproject.toml", ".gitignore")
_SHARED = ("sources", "git")
"""Below `.cache/`: what was fetched. Never what was built."""


@contextlib.contextmanager
def workspace(layout: Layout) -> Iterator[Path]:
    """An empty folder that is removed when the block ends; those of killed processes are removed before."""
    folder = layout.cache / "repro"
    folder.mkdir(parents=True, exist_ok=True)
    sweep_partials(folder)
    made = folder / f"{PARTIAL_PREFIX}{os.getpid()}-{layout.stack}"
    try:
        remove(made)
        made.mkdir()
        yield made
    finally:
        remove(made)


def snapshot(root: Path, target: Path) -> Path:
    """A copy of everything that a build reads, taken once: a file that is saved meanwhile must not be a difference."""
    files = [path for name in _FOLDERS if (root / name).is_dir() for path in source_files(root / name)]
    files += [root / name for name in _FILES if (root / name).is_file()]
    for path in files:
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    return target


def make_project(inputs: Path, place: Path, under: Conditions) -> None:
    """`place/project` with the inputs, as somebody with this umask would have checked them out, at that date."""
    project = place / "project"
    paths = sorted(inputs.rglob("*"), reverse=under.hash_seed % 2 == 0)
    for path in paths:
        target = project / path.relative_to(inputs)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod((0o777 if os.access(path, os.X_OK) else 0o666) & ~under.umask)
        os.utime(target, (under.dated, under.dated))
    for folder in sorted((path for path in project.rglob("*") if path.is_dir()), reverse=True):
        folder.chmod(0o777 & ~under.umask)
        os.utime(folder, (under.dated, under.dated))
    for name in ("home", "tmp"):
        (place / name).mkdir()


def share(layout: Layout, stack: Stack, place: Path) -> None:
    """Copy what is fetched already to a place to hand it on from: by reflink where the file system can, at no cost."""
    for source in _fetched(layout, stack):
        target = place / "project" / source.relative_to(layout.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        commands.check(
            ["cp", "--archive", "--reflink=auto", "--", str(source), str(target)],
            cwd=layout.root,
            env=child_environment(os.environ, {}),
            log=layout.logs / f"repro-{layout.stack}-share.log",
            error=BuildError,
            what=f"copying {layout.relative(source)}",
        )


def hand_on(former: Path, project: Path) -> None:
    """Move what was fetched from the place of a build that is done to the next project; all that it built stays."""
    for name in _SHARED:
        source = former / "project" / ".cache" / name
        if source.is_dir():
            target = project / ".cache" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)


def _fetched(layout: Layout, stack: Stack) -> list[Path]:
    engine = stack.engine
    folders = [] if engine is None else [layout.sources / wheel.sha256 for wheel in (engine.base, engine.donor)]
    for name, source in stack.sources.items():
        pins = {name: source.revision, **{f"{name}.{each}": pin.revision for each, pin in source.nested.items()}}
        for entry, revision in pins.items():
            folders += sorted((layout.cache / "git").glob(f"{entry}-{revision}*"))
    return [folder for folder in folders if folder.is_dir()]
