"""One build as a person would start it, in a project folder of its own, under given conditions."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import commands, errors
from scripts import manifest as manifests
from scripts.console import Console
from scripts.errors import BuildError, BuildPlaneError
from scripts.layout import Layout
from scripts.manifest import Manifest
from scripts.options import Choices
from scripts.publish import remove
from scripts.repro.conditions import Conditions, variables

BUILD_LIMIT_S = 12 * 3600.0
"""For a whole stack from source, on a machine with few cores."""

_DIE_WITH_PARENT = "SMOKESTACK_DIE_WITH_PARENT"
_ERRORS: dict[str, type[BuildPlaneError]] = {
    each.kind: each for each in (errors.UsageError, errors.DoctorError, errors.PinError, errors.BuildError)
}


@dataclass(frozen=True)
class Attempt:
    """A build that ended well: `dist` is what it made, moved out of the folder `place` that it was made in."""

    place: Path
    under: Conditions
    dist: Path
    manifest: Manifest
    seconds: float

    def document(self) -> dict[str, Any]:
        return {**self.under.document(), "seconds": round(self.seconds, 1)}


def build_in(
    layout: Layout, place: Path, under: Conditions, choices: Choices, console: Console, *, results: Path
) -> Attempt:
    """Build the stack in `place/project`. Raises what that build raises; its logs are then kept in `.cache/logs`.

    What it made is moved to `results`, whose name the build has in messages.
    """
    name = results.name
    began = time.monotonic()
    project = Layout(place / "project", layout.stack)
    log, answer = layout.logs / f"repro-{layout.stack}-{name}.log", place / "answer.json"
    follow = _follower(log, console)
    with console.step(f"{name} build in {under.folder}"):
        finished = commands.run(
            command(layout.stack, choices),
            cwd=project.root,
            env={**variables(under, place, os.environ), _DIE_WITH_PARENT: str(os.getpid())},
            log=log,
            answer=answer,
            limit_s=BUILD_LIMIT_S,
            umask=under.umask,
            watch=follow,
        )
        follow()
        manifest = manifests.load(project.manifest)
        if finished.returncode != 0 or finished.expired or manifest is None:
            raise _failed(layout, project, answer, log, name)
    results.parent.mkdir(exist_ok=True)
    project.dist.rename(results)
    return Attempt(place, under, results, manifest, time.monotonic() - began)


def command(stack: str, choices: Choices) -> list[str]:
    """What a person would type, with the caller's own options."""
    argv = [sys.executable, "-m", "scripts", "build", "--stack", stack, "--json"]
    for name, path in choices.sources.items():
        argv += ["--source", f"{name}={path.absolute()}"]
    argv += ["--allow-dirty"] if choices.allow_dirty else []
    argv += [argument for check in choices.ignored_checks for argument in ("--ignore-check", check)]
    return argv + (["--jobs", str(choices.jobs)] if choices.jobs is not None else [])


def _follower(log: Path, console: Console) -> Callable[[], None]:
    """Shows, whenever it is called, the whole lines that the build has written since; not the command itself."""
    told = 0

    def look() -> None:
        nonlocal told
        with log.open("rb") as handle:
            handle.seek(told)
            whole, newline, _ = handle.read().rpartition(b"\n")
        for line in whole.decode(errors="replace").splitlines():
            if told or not line.startswith("$ "):
                console.say(f"    {line}")
        told += len(whole) + len(newline)

    return look


def _failed(layout: Layout, project: Layout, answer: Path, log: Path, name: str) -> BuildPlaneError:
    """The build's own error, with its logs moved to where they stay."""
    kept = layout.logs / f"repro-{layout.stack}-{name}"
    remove(kept)
    if project.logs.is_dir():
        project.logs.rename(kept)
    told = _error_of(answer)
    where = told.get("log")
    fields = {key: told.get(key) for key in ("expected", "found", "where", "hint")}
    return _ERRORS.get(told.get("kind") or "", BuildError)(
        f"the {name} build failed: {told.get('what') or 'it gave no answer'}",
        **fields,
        log=kept / Path(where).name if where and (kept / Path(where).name).is_file() else log,
    )


def _error_of(answer: Path) -> dict[str, str | None]:
    try:
        document = json.loads(answer.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError):
        return {}
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, dict) else {}
