"""`clean`: what caches and old runs occupy is listed, and deleted when asked; nothing in use, nothing outside.

    stack files + state of the last builds -> needed -> catalogue -> usage (locks, processes) -> removal

Only what this project is known to write is looked at: anything else in its folders is somebody's own. Whoever builds,
installs or starts a run meanwhile waits, by the locks that these commands have among themselves. May not import the run
plane: what a run is known by (`stack.json`, the lock `<stack>.in-use`, its open files) is read from disk.
"""

from __future__ import annotations

import time
from dataclasses import replace

from scripts.clean.catalogue import Item, Scope, catalogue
from scripts.clean.measuring import measure
from scripts.clean.needed import read_needed
from scripts.clean.removal import remove, repoint_latest
from scripts.clean.report import DAY_S, Listed, Report
from scripts.clean.usage import Usage
from scripts.console import Console
from scripts.layout import Layout

__all__ = ["Report", "clean"]


def clean(
    layout: Layout,
    console: Console,
    *,
    cache: bool,
    runs: bool,
    everything: bool,
    older_than_days: float,
    delete: bool,
) -> Report:
    """List what may go, of all stacks, and delete it with `delete`. With neither scope named, both count.

    `everything` adds what the present `dist/` and the stack files need, and artifacts and environments themselves.
    """
    scopes: set[Scope] = {"all"} if everything else set()
    scopes |= {"cache"} if cache or everything or not runs else set()
    scopes |= {"runs"} if runs or everything or not cache else set()
    now = time.time()
    with Usage.of(layout.root, taking=delete) as usage:
        listed = []
        for item in catalogue(layout.root, read_needed(layout.root)):
            if item.scope in scopes:
                listed.append(_judged(layout, item, usage, now, everything=everything))
        report = Report(
            would_go=tuple(each for each in listed if each.kept is None and each.age_s >= older_than_days * DAY_S),
            kept=tuple(each for each in listed if each.kept is not None),
            younger=sum(each.kept is None and each.age_s < older_than_days * DAY_S for each in listed),
        )
        return _delete(layout, report, console) if delete else report


def _judged(layout: Layout, item: Item, usage: Usage, now: float, *, everything: bool) -> Listed:
    kept = item.untouchable or usage.reason(item)
    if kept is None and not everything:
        kept = item.needed
    if kept is not None:
        return Listed(item.path, item.why, kept=kept)
    size, newest = measure(layout.root / item.path)
    return Listed(item.path, item.why, size=size, age_s=max(0.0, now - newest))


def _delete(layout: Layout, report: Report, console: Console) -> Report:
    for line in report.listing():
        console.say(line)
    failed, freed = [], 0
    for each in report.would_go:
        try:
            remove(layout.root, each.path)
            freed += each.size
        except OSError as error:
            failed.append(replace(each, kept=f"{error.strerror or error} ({error.filename or each.path})"))
    repoint_latest(layout.root)
    return replace(report, deleted=True, freed=freed, failed=tuple(failed))
