"""What commands leave in a project, made small; and what `clean` says of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from synthetic import Project, sha256

from scripts.clean import Report, clean
from scripts.console import Console

RUN = "20261129T153649Z-d20cb968"
LATER = "20261130T000000Z-00000000"
DAY_S = 86400
REVISION = "0123456789" * 4


def make(folder: Path, *files: str, age_days: float = 0.0) -> Path:
    """A folder with small files, all of one age."""
    for name in files or ("file",):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 5000)
    when = folder.stat().st_mtime - age_days * DAY_S
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (when, when))
    return folder


def run_folder(project: Project, name: str = RUN, *, age_days: float = 0.0, files: tuple[str, ...] = ()) -> Path:
    every = ("events.jsonl", "verdict.json", "logs/engine.log", *files)
    return make(project.root / "runs" / name, *every, age_days=age_days)


def run(project: Project, console: Console, **chosen: Any) -> Report:
    options = {"cache": False, "runs": False, "everything": False, "older_than_days": 0.0, "delete": False}
    return clean(project.layout, console, **{**options, **chosen})


def paths(report: Report) -> set[str]:
    return {each["path"] for each in report.document()["items"]}


def kept(report: Report) -> dict[str, str]:
    return {each["path"]: each["why"] for each in report.document()["kept"]}


def pinned(project: Project) -> set[str]:
    return {f".cache/sources/{sha256(wheel)}" for wheel in (project.base, project.donor)}


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
