"""`clean`: lists before it deletes, deletes only what is the project's own, and nothing that is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from leftovers import LATER, REVISION, RUN, kept, make, paths, pinned, run, run_folder, tree
from synthetic import Project

from scripts import build
from scripts.build_inputs import read_inputs
from scripts.clean import removal
from scripts.console import Console


def test_it_only_lists_unless_told(project: Project, console: Console) -> None:
    run_folder(project, age_days=3)
    make(project.layout.sources / ("f" * 64))
    before = tree(project.root)
    report = run(project, console)
    lines = report.lines()
    assert tree(project.root) - before <= {".cache/locks"}
    assert paths(report) == {f"runs/{RUN}", f".cache/sources/{'f' * 64}"}
    row = next(line for line in lines if RUN in line)
    size = next(each["bytes"] for each in report.document()["items"] if RUN in each["path"])
    assert row.split(maxsplit=5)[1:] == [f"{size / 1000:.1f}", "kB", "3", "d", "a run that has ended"]
    assert lines[-1].endswith("nothing is deleted without --yes")


def test_it_lists_then_deletes_and_says_what_was_freed(project: Project, console: Console) -> None:
    folder = run_folder(project)
    report = run(project, console, delete=True)
    assert not folder.exists()
    assert report.ok
    freed = report.document()["freed_bytes"]
    assert freed == report.document()["items"][0]["bytes"] > 15000
    said = console.stream.getvalue()  # type: ignore[attr-defined]
    assert f"runs/{RUN}" in said
    assert report.lines() == [f"deleted 1 item, freed {freed / 1000:.1f} kB"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"cache", "runs"}),
        ({"cache": True}, {"cache"}),
        ({"runs": True}, {"runs"}),
        ({"everything": True}, {"cache", "runs", "all"}),
    ],
)
def test_scopes(project: Project, console: Console, chosen: dict[str, bool], expected: set[str]) -> None:
    run_folder(project)
    make(project.layout.cache / "compile" / "mini")
    for folder in (project.layout.dist, project.layout.environment, project.layout.cache / "models" / "tiny-1234"):
        make(folder)
    every = {
        "cache": {".cache/compile/mini"},
        "runs": {f"runs/{RUN}"},
        "all": {"dist/mini", ".venv-mini", ".cache/models/tiny-1234", *pinned(project)},
    }
    assert paths(run(project, console, **chosen)) == set().union(*(every[scope] for scope in expected))


def test_what_this_project_has_not_made_is_not_even_listed(project: Project, console: Console) -> None:
    own = ("dist/notes", ".venv-mine", ".cache/sources/mine", ".cache/git/vllm-mine", "runs/notes")
    for name in own:
        make(project.root / name)
    (project.root / "dist" / "letter.txt").touch()
    make(project.root / "dist" / "former", "manifest.json")
    make(project.root / ".venv-former", "smokestack-contents.json")
    report = run(project, console, everything=True, delete=True)
    assert {"dist/former", ".venv-former"} <= paths(report)
    assert report.ok
    assert all((project.root / name / "file").is_file() for name in own)
    assert (project.root / "dist" / "letter.txt").exists()


def test_what_a_stack_file_pins_stays_unless_everything_goes(project: Project, console: Console) -> None:
    text = project.layout.stack_file.read_text()
    table = f'[sources.vllm]\nrepository = "https://github.com/vllm-project/vllm"\nrevision = "{REVISION}"\n'
    project.layout.stack_file.write_text(text + table)
    git = project.layout.cache / "git"
    for name in (
        f"vllm-{REVISION}",
        f"vllm-{REVISION}-history",
        f"vllm-{'f' * 40}",
        f"vllm-{REVISION}-dirty-{'a' * 40}",
    ):
        make(git / name)
    empty = "e3b0c44298fc"  # The digest of the pinned model's file, which is empty.
    for name in (f"toy-{empty}", "toy-000000000000"):
        make(project.layout.cache / "models" / name)
    report = run(project, console)
    assert paths(report) == {
        f".cache/git/vllm-{'f' * 40}",
        f".cache/git/vllm-{REVISION}-dirty-{'a' * 40}",
        ".cache/models/toy-000000000000",
    }
    assert set(kept(report).values()) == {"pinned by stacks/mini"}
    assert len(paths(run(project, console, everything=True))) == 8


def test_a_stack_file_that_cannot_be_read_keeps_all_that_it_may_pin(project: Project, console: Console) -> None:
    unknown = make(project.layout.sources / ("f" * 64))
    project.edit(project.layout.stack_file, "schema = 1", "schema = ")
    report = run(project, console, delete=True)
    assert unknown.exists()
    assert "stacks/mini/stack.toml cannot be read" in kept(report)[f".cache/sources/{'f' * 64}"]


def test_products_and_engine_caches_of_the_present_dist_stay(
    whole: Project, project: Project, console: Console
) -> None:
    for name in ("harness", "scripts"):
        shutil.copytree(whole.root / name, project.root / name)
    manifest = build.build(project.layout, read_inputs(project.layout), console).whole()
    keys = list(json.loads(project.layout.build_state.read_text())["products"])
    for name in (keys[0], "a" * 64):
        make(project.layout.cache / "built" / name)
    for digits in (manifest.inputs[:12], "0" * 12):
        make(project.layout.cache / f"stack-mini-{digits}")
    report = run(project, console, cache=True)
    assert {".cache/built/" + "a" * 64, ".cache/stack-mini-000000000000"} <= paths(report)
    assert {f".cache/built/{keys[0]}", f".cache/stack-mini-{manifest.inputs[:12]}"} <= kept(report).keys()


def test_what_is_not_known_is_not_touched(project: Project, console: Console) -> None:
    theirs = [
        make(project.root / "runs" / "notes"),
        make(project.layout.cache / "mine"),
        make(project.root / "build"),
        make(project.layout.cache / "locks"),
    ]
    run(project, console, everything=True, delete=True)
    assert [folder.exists() for folder in theirs] == [True] * 4
    assert project.layout.stack_file.exists()


def test_links_are_neither_followed_nor_deleted(project: Project, console: Console, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", "precious", "git/x", RUN + "/events.jsonl")
    links = {
        project.layout.sources / ("f" * 64): outside,
        project.root / "runs" / RUN: outside / RUN,
        project.layout.cache / "git": outside / "git",
        project.layout.cache / "models": outside,
        project.root / ".venv-mini": outside,
    }
    for link, target in links.items():
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
    inner = make(project.root / "runs" / LATER, "events.jsonl", "verdict.json")
    (inner / "logs").symlink_to(outside)
    before = tree(outside)
    report = run(project, console, everything=True, delete=True)
    assert report.ok
    assert not inner.exists()
    assert tree(outside) == before
    assert all(link.is_symlink() for link in links)
    assert kept(report)[".venv-mini"].startswith("a link: ")


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(project: Project, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", "victim/file")
    (project.layout.cache / "git").symlink_to(outside)
    with pytest.raises(OSError, match="git"):
        removal.remove(project.root, ".cache/git/victim")
    with pytest.raises(ValueError, match="leaves the project"):
        removal.remove(project.root, "../outside/victim")
    assert (outside / "victim" / "file").exists()


@pytest.mark.parametrize(("left", "target"), [([RUN], RUN), ([RUN, LATER], LATER), ([], None)])
def test_latest_leads_to_the_newest_run_that_is_left(
    project: Project, console: Console, left: list[str], target: str | None
) -> None:
    newest = "20261201T000000Z-11111111"
    for name in left:
        run_folder(project, name, files=("stack.json",))
    run_folder(project, newest)
    latest = project.root / "runs" / "latest"
    latest.symlink_to(newest)
    run(project, console, delete=True)
    assert (latest.readlink() if latest.is_symlink() else None) == (None if target is None else Path(target))


def test_latest_stays_when_its_run_stays(project: Project, console: Console) -> None:
    run_folder(project, RUN, files=("stack.json",))
    run_folder(project, LATER)
    latest = project.root / "runs" / "latest"
    latest.symlink_to(RUN)
    run(project, console, delete=True)
    assert latest.readlink() == Path(RUN)


def test_only_what_is_older_goes(project: Project, console: Console) -> None:
    run_folder(project, RUN, age_days=8)
    run_folder(project, LATER, age_days=6)
    report = run(project, console, older_than_days=7.0)
    assert paths(report) == {f"runs/{RUN}"}
    assert "stays: 1 item written since" in report.lines()


def test_a_file_that_lives_elsewhere_too_frees_nothing(project: Project, console: Console, tmp_path: Path) -> None:
    folder = make(project.root / "runs" / RUN, "events.jsonl", "one", "two")
    os.link(folder / "one", tmp_path / "elsewhere")
    os.link(folder / "two", folder / "same")
    whole = sum(path.stat().st_blocks for path in (folder, folder / "events.jsonl", folder / "two")) * 512
    assert run(project, console).document()["items"][0]["bytes"] == whole


def test_what_cannot_be_deleted_is_said(project: Project, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder(project)

    def refuse(root: Path, item: str) -> None:
        raise PermissionError(13, "Permission denied", item)

    monkeypatch.setattr("scripts.clean.remove", refuse)
    report = run(project, console, delete=True)
    assert not report.ok
    assert report.document()["failed"] == [{"path": f"runs/{RUN}", "why": f"Permission denied (runs/{RUN})"}]
    assert report.lines()[0].startswith(f"not deleted: runs/{RUN}: ")


def test_the_command(whole: Project) -> None:
    folder = run_folder(whole)
    answers = [command(whole, *options) for options in ((), ("--yes",))]
    assert [each["deleted"] for each in answers] == [False, True]
    assert [[item["path"] for item in each["items"]] for each in answers] == [[f"runs/{RUN}"]] * 2
    assert not folder.exists()


def command(project: Project, *options: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "scripts", "clean", "--runs", "--stack", "mini", "--json", *options]
    done = subprocess.run(argv, cwd=project.root, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
