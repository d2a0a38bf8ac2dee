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
from scripts.environ import child_environment
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
    return [
        Lock(folder / "bootstrap.in", folder / "bootstrap.lock", "3.11", _ANY_PLATFORM),
        Lock(folder / "tool.in", folder / "tool.lock", "3.11", _ANY_PLATFORM),
        _environment(layout, stack, environ),
        *_of_source_builds(layout, stack, environ),
        *_of_payload_tests(layout, stack, folder),
    ]


def _environment(layout: Layout, stack: Stack, environ: dict[str, str]) -> Lock:
    """The stack's environment, but for the wheels that `build` makes: of those the dependencies only."""
    overrides = layout.stack_dir / "overrides.txt"
    # The assembled wheel itself, of another name than its base, is asked for by nobody.
    unmade = sorted(stack.built) if stack.engine is None else [stack.engine.base.distribution]
    return Lock(
        layout.stack_dir / "requirements.in",
        layout.lock,
        stack.python,
        (
            *_LINUX,
            *(("--override", layout.relative(overrides)) if overrides.is_file() else ()),
            *(argument for name in unmade for argument in ("--no-emit-package", name)),
            *_torch(stack, environ),
        ),
    )


def _of_source_builds(layout: Layout, stack: Stack, environ: dict[str, str]) -> list[Lock]:
    """The build environment of a stack that is built from source: its packages at the versions of the environment.

    What links against torch must be built against the torch that it will run with.
    """
    if stack.recipes is None:
        return []
    return [
        Lock(
            layout.stack_dir / "build.in",
            layout.stack_dir / "build.lock",
            stack.python,
            (*_LINUX, "--constraint", layout.relative(layout.lock), *_torch(stack, environ)),
        )
    ]


def _torch(stack: Stack, environ: dict[str, str]) -> list[str]:
    """What uv must be told to find the stack's torch, if it has one."""
    torch = stack.packages.get("torch")
    return [] if torch is None else indexes.torch_arguments(torch.version, stack.torch_backend, environ)


def _of_payload_tests(layout: Layout, stack: Stack, folder: Path) -> list[Lock]:
    """What the payload's tests need beside the environment in which they run: that of the stack for CPUs."""
    if stack.platform != "cpu" or stack.engine is None:
        return []
    constraint = ("--constraint", layout.relative(layout.lock))
    return [
        Lock(folder / "payload-tests.in", folder / "payload-tests.lock", stack.python, (*_LINUX, *constraint)),
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
            env=child_environment(os.environ, environ),
            log=layout.logs / f"lock-{lock.target.parent.name}-{lock.target.stem}.log",
            error=BuildError,
            what=f"resolving {layout.relative(lock.source)}",
        )
    return lock.target.read_bytes() != before
