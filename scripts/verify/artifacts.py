"""Our artifacts, those that are whole: wheels and executables, by our own checks and by programs that others wrote."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.layout import Layout
from scripts.manifest import Manifest
from scripts.stackfile import Stack
from scripts.verify import allowances, contents, elf, programs, system
from scripts.verify.archive import Problem
from scripts.verify.findings import Finding
from scripts.verify.programs import Complaint
from scripts.verify.wheel import Checked, check_wheel, findings


@dataclass
class Outcome:
    """What is wrong with the artifacts, and what they need from outside: file -> library -> its place, if found."""

    findings: list[Finding] = field(default_factory=list)
    needs: dict[str, dict[str, str | None]] = field(default_factory=dict)


def verify_artifacts(layout: Layout, manifest: Manifest, stack: Stack | None, whole: Collection[str]) -> Outcome:
    """Look into every artifact whose bytes are the manifest's. Raises `PinError` for allowances that are none."""
    device = manifest.platform if stack is None or stack.recipes is None else stack.recipes.vllm.device
    outcome = Outcome()
    wheels: dict[str, Checked] = {}
    for artifact in manifest.artifacts:
        path = layout.dist / artifact.file
        if artifact.file not in whole:
            continue
        if artifact.kind == "wheel":
            rules = contents.of(artifact.name, device)
            wheels[artifact.name] = check_wheel(path, layout.relative(path), artifact, rules, layout.cache)
            outcome.findings += wheels[artifact.name].findings
        else:
            problems, outcome.needs[artifact.file] = check_binary(path, layout.cache)
            outcome.findings += findings("platform", layout.relative(path), problems)
    files = {artifact.name: layout.dist / artifact.file for artifact in manifest.wheels if artifact.name in wheels}
    complaints = _complaints(files, wheels, outcome)
    allowed = allowances.load(layout.stack_dir / allowances.FILE_NAME)
    unseen = {artifact.name for artifact in manifest.artifacts} - files.keys()
    outcome.findings += programs.judge(
        complaints,
        [each for each in allowed if each.artifact not in unseen],
        {name: layout.relative(path) for name, path in files.items()},
        layout.relative(layout.stack_dir / allowances.FILE_NAME),
    )
    return outcome


def check_binary(path: Path, build_folder: Path) -> tuple[list[Problem], dict[str, str | None]]:
    """What is wrong with an executable of ours, and the libraries that it needs: library -> its place, if found."""
    data = path.read_bytes()
    problems = []
    if not os.access(path, os.X_OK):
        problems.append(Problem("", "may not be executed", "mode 0755", f"mode {path.stat().st_mode & 0o7777:04o}"))
    if f"{build_folder}/".encode() in data:
        problems.append(Problem("", "has the folder of this machine's builds in it"))
    try:
        code = elf.read(data)
    except elf.UnreadableError as error:
        return [*problems, Problem("", "is not an executable of machine code", found=str(error))], {}
    if not code.program:
        problems.append(Problem("", "is a library and not an executable"))
    if code.machine != os.uname().machine:
        problems.append(Problem("", "is for another machine than this one", os.uname().machine, code.machine))
    places = {library: system.find(library, code.machine) for library in code.needed}
    problems += system.problems("", code)
    return problems, {library: None if place is None else str(place) for library, place in places.items()}


def _complaints(files: Mapping[str, Path], wheels: Mapping[str, Checked], outcome: Outcome) -> list[Complaint]:
    """What the outside programs say. `auditwheel show` looks only at wheels with machine code."""
    complaints = programs.check_contents(files)
    for name, checked in wheels.items():
        if checked.code:
            path = files[name]
            told, outcome.needs[path.name] = programs.show_platform(name, path, sorted(checked.platforms))
            complaints += told
    return complaints
