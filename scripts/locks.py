"""`lock`: resolve again, and write every lock file. Hashes for everything, and no address of any index.

The same index gives the same file on every machine: the platform and the Python are named, and the header carries the
command that a person types instead of the one that ran.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from scripts import commands, indexes, pins
from scripts.console import Console
from scripts.environment import uv_environment, uv_program
from scripts.errors import BuildError
from scripts.layout import Layout
from scripts.publish import publishing
from scripts.stackfile import Stack

_LINUX = ("--python-platform", "x86_64-manylinux_2_28")
_ANY_PLATFORM = ("--universal",)


@dataclass(frozen=True)
class Lock:
    """One lock file: its source (`.in`), itself, and the options that are its own."""

    source: Path
    target: Path
    python: str
    options: tuple[str, ...]


def locks(layout: Layout, stack: Stack, environ: dict[str, str]) -> list[Lock]:
    """Every lock file, in the order in which they build on each other."""
    folder = layout.root / "scripts" / "requirements"
    overrides = layout.stack_dir / "overrides.txt"
    torch = indexes.torch_arguments(stack.packages["torch"].version, stack.torch_backend, environ)
    return [
        Lock(folder / "bootstrap.in", folder / "bootstrap.lock", "3.11", _ANY_PLATFORM),
        Lock(folder / "tool.in", folder / "tool.lock", "3.11", _ANY_PLATFORM),
        Lock(
            layout.stack_dir / "requirements.in",
            layout.lock,
            stack.python,
            (
                *_LINUX,
                *("--override", layout.relative(overrides)),
                # The assembled wheel takes its place; its dependencies stay.
                *("--no-emit-package", stack.engine.base.distribution),
                *torch,
            ),
        ),
        Lock(
            folder / "payload-tests.in",
            folder / "payload-tests.lock",
            stack.python,
            (*_LINUX, "--constraint", layout.relative(layout.lock)),
        ),
    ]


def lock_all(layout: Layout, console: Console) -> list[str]:
    """Write every lock; the paths of those that changed."""
    environ = uv_environment()
    changed = []
    for lock in locks(layout, pins.load(layout.stack_file), environ):
        name = layout.relative(lock.target)
        with console.step(f"resolve {name}"):
            if _resolve(layout, lock, environ):
                changed.append(name)
    console.say(f"changed: {', '.join(changed) or 'nothing'}")
    return changed


def command(layout: Layout, lock: Lock, target: Path) -> list[str]:
    """uv's command line for one lock; every path in it is relative to the project's root, as it ends up in the file."""
    return [
        *(uv_program(), "pip", "compile", "--quiet", "--generate-hashes", "--no-emit-index-url"),
        *("--python-version", lock.python, "--custom-compile-command", "./noxw -s lock"),
        *lock.options,
        *("--output-file", layout.relative(target), layout.relative(lock.source)),
    ]


def _resolve(layout: Layout, lock: Lock, environ: dict[str, str]) -> bool:
    before = lock.target.read_bytes() if lock.target.is_file() else None
    with publishing(lock.target) as partial:
        commands.check(
            command(layout, lock, partial),
            cwd=layout.root,
            env=commands.child_environment(os.environ, environ),
            log=layout.logs / f"lock-{lock.target.parent.name}-{lock.target.stem}.log",
            error=BuildError,
            what=f"resolving {layout.relative(lock.source)}",
        )
    return lock.target.read_bytes() != before
