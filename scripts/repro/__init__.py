"""`repro`: a stack is built twice, as differently as one machine allows, and compared byte for byte.

Different folder, umask, locale, time zone, HOME, hash seed and age of the inputs; the same inputs, and nothing that was
built is kept in between. When a file differs, a third build in the first folder under the first conditions measures
what is left. The user's `dist/` and environment are not touched. Builds run as a person's would, by `python -m scripts
build` in a project folder of their own; nothing here knows how anything is built.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from scripts.build_inputs import read_inputs
from scripts.build_paths import BuildPaths
from scripts.console import Console
from scripts.exclusion import exclusive
from scripts.layout import Layout
from scripts.manifest import Manifest
from scripts.options import NO_CHOICES, Choices
from scripts.publish import remove
from scripts.repro import comparison, conditions, explaining, places
from scripts.repro.building import Attempt, build_in
from scripts.repro.comparison import FileResult
from scripts.repro.conditions import Conditions
from scripts.repro.fetching import fetch
from scripts.repro.report import Report

__all__ = ["Report", "repro"]


def repro(layout: Layout, console: Console, choices: Choices = NO_CHOICES) -> Report:
    """Build twice, compare, explain. Raises what `build` raises."""
    # A wrong option, and what the machine lacks, is said before anything is copied.
    stack = read_inputs(layout, choices).stack
    first, second = conditions.pair(layout.root, os.environ)
    with places.workspace(layout) as workspace:
        with exclusive(layout.mutex, console):
            fetch(layout, stack, choices, console)
            inputs = places.snapshot(layout.root, workspace / "inputs")
            places.share(layout, stack, workspace / "shared")
        builds = _Builds(layout, choices, console, workspace, inputs)
        attempts = [builds.next("first", first), builds.next("second", second)]
        if comparison.differing(attempts[0].dist, attempts[1].dist):
            console.say("  not equal: once more in the first folder, under the first conditions")
            attempts.append(builds.next("third", first))
        unpinned = _unpinned(attempts[0].manifest)
        common = conditions.common_folders(layout.root, os.environ, compiled=stack.recipes is not None)
        files = comparison.compare(
            [attempt.dist for attempt in attempts], pinned=not unpinned, common=BuildPaths.of(common)
        )
        return Report(
            stack=layout.stack,
            files=files,
            unpinned=unpinned,
            builds=[attempt.document() for attempt in attempts],
            explanations=_explanations(layout, files, attempts, console),
        )


@dataclass
class _Builds:
    """One build after the other; each gets what was fetched from the one before, and nothing that was built."""

    layout: Layout
    choices: Choices
    console: Console
    workspace: Path
    inputs: Path

    def __post_init__(self) -> None:
        self._former = self.workspace / "shared"

    def next(self, name: str, under: Conditions) -> Attempt:
        place = self.workspace / under.folder
        places.make_project(self.inputs, place, under)
        places.hand_on(self._former, place / "project")
        remove(self._former)
        self._former = place
        results = self.workspace / "results" / name
        return build_in(self.layout, place, under, self.choices, self.console, results=results)


def _explanations(
    layout: Layout, files: list[FileResult], attempts: list[Attempt], console: Console
) -> dict[str, list[str]]:
    first, second = attempts[:2]
    found = {}
    for result in files:
        if result.held:
            found[result.file] = [f"it holds {', '.join(result.held)}, which both builds had in common"]
        elif not result.equal:
            one, other = first.dist / result.file, second.dist / result.file
            told = explaining.explained(one, other, (first.place, second.place))
            detailed = explaining.by_diffoscope(layout, one, other, console)
            found[result.file] = told if detailed is None else [*told, detailed]
    return found


def _unpinned(manifest: Manifest) -> list[str]:
    """Inputs that another build may find changed: each source's changes, and what it fetches at whatever revision."""
    dirty = [f"{source.name} has changes of its own" for source in manifest.sources if source.dirty]
    floating = [
        f"{source.name} fetches {nested.name} at a revision that the stack file does not pin"
        for source in manifest.sources
        for nested in source.nested
        if nested.floating
    ]
    return [*dirty, *floating]
