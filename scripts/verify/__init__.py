"""`verify`: is `dist/<stack>` what was built, are its artifacts what they say, is the environment what was installed?

manifest, SHA256SUMS, RECORDs and the install's inventory -> findings, one for each file that is not as recorded.
Reads everything and changes nothing. Never builds, never installs; nothing but the command line imports it.
"""

from __future__ import annotations

import shlex
import time

from scripts.assertions import fix as reinstall
from scripts.console import Console
from scripts.inventory import Entry
from scripts.layout import Layout
from scripts.provenance import signing
from scripts.verify import inputs
from scripts.verify.artifacts import Outcome, verify_artifacts
from scripts.verify.dist import verify_dist
from scripts.verify.environment import Installed, verify_environment
from scripts.verify.findings import Finding, Report

__all__ = ["Finding", "Report", "verify", "verify_dist", "verify_environment"]

_SHOWN_FIXES = 8


def verify(layout: Layout, console: Console, *, environment: bool = True) -> Report:
    """Everything of one stack; without its environment on request. The caller keeps others from changing it."""
    began = time.monotonic()
    report = Report(layout.stack)
    present = inputs.read(layout)
    with console.step(f"read {layout.relative(layout.dist)}"):
        dist = verify_dist(layout)
    report.findings += [*present.findings, *dist.findings]
    report.checked["files in dist"] = dist.files
    installed, outcome = Installed(), Outcome()
    if environment:
        with console.step(f"read {layout.relative(layout.environment)}"):
            installed = verify_environment(layout, dist.manifest, dist.whole)
        report.checked["entries in the environment"] = len(installed.entries)
    if dist.manifest is not None:
        changed = inputs.dirty(dist.manifest)
        report.notes += (
            [f"built from changed files of {', '.join(changed)}, which no revision names"] if changed else []
        )
        report.findings += inputs.compare(layout, present, dist.manifest)
        with console.step("look into the artifacts"):
            outcome = verify_artifacts(layout, dist.manifest, present.stack, dist.whole)
        report.checked["artifacts"] = sum(artifact.file in dist.whole for artifact in dist.manifest.artifacts)
    report.findings += [*outcome.findings, *installed.findings]
    report.notes += [signing.sentence(layout.dist), *present.notes, *_needs(layout, outcome, installed.entries)]
    report.fixes += _fixes(layout, report.findings)
    report.seconds = time.monotonic() - began
    return report


def _needs(layout: Layout, outcome: Outcome, entries: dict[str, Entry]) -> list[str]:
    """Where the libraries that an artifact does not have come from; for people, as a container may have others."""
    folders = {name.rpartition("/")[2]: name.rpartition("/")[0] for name in entries}
    notes = []
    for file, libraries in sorted(outcome.needs.items()):
        told = [
            f"{library} ({'this machine' if place else folders.get(library, 'not found')})"
            for library, place in sorted(libraries.items())
        ]
        if told:
            notes.append(f"{layout.relative(layout.dist / file)} needs from outside: {', '.join(told)}")
    return notes


def _fixes(layout: Layout, findings: list[Finding]) -> list[str]:
    kinds = {finding.kind for finding in findings}
    changed = [each for each in findings if each.kind in {"altered", "missing", "unjudged"}]
    dist, place = layout.relative(layout.dist), layout.relative(layout.environment)
    fixes = []
    if any(each.file.startswith(dist) for each in changed):
        fixes.append(f"./noxw -s build -- --stack {layout.stack} --force")
    extra = [each.file for each in findings if each.kind == "extra"]
    # A folder's files go with it.
    tops = [file for file in extra if not any(file.startswith(f"{other}/") for other in extra)]
    if len(tops) <= _SHOWN_FIXES and all(file.isprintable() for file in tops):
        fixes += [f"rm -r {shlex.quote(file)}" for file in tops]
    else:
        fixes.append(f"look at what is extra in {dist} and {place}, and delete it")
    if any(each.file.startswith(place) for each in changed):
        fixes.append(reinstall(layout.stack))
    if "inputs" in kinds:
        fixes.append(f"./noxw -s install -- --stack {layout.stack}   # builds what has changed, too")
    return fixes
