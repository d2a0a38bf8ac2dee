"""`clean` leaves alone what is in use, and nobody begins to use what it deletes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leftovers import LATER, REVISION, RUN, kept, make, paths, run, run_folder
from synthetic import Project

from scripts.clean import removal
from scripts.console import Console


def test_a_stack_that_is_up_keeps_its_run(project: Project, console: Console) -> None:
    folder = run_folder(project, files=("stack.json",))
    report = run(project, console, everything=True, delete=True)
    assert folder.exists()
    assert "./noxw -s down" in kept(report)[f"runs/{RUN}"]


def test_what_a_process_has_open_stays(project: Project, console: Console) -> None:
    folder, other = run_folder(project), run_folder(project, LATER)
    with (folder / "logs" / "engine.log").open("ab") as log, living(stdout=log) as pid:
        report = run(project, console, delete=True)
    assert (folder.exists(), other.exists()) == (True, False)
    assert kept(report)[f"runs/{RUN}"] == f"in use by pid {pid}"


def test_a_run_without_a_verdict_stays_while_an_environment_is_in_use(project: Project, console: Console) -> None:
    done, at_work = run_folder(project), run_folder(project, LATER)
    (at_work / "verdict.json").unlink()
    with locked(project.layout.in_use, fcntl.LOCK_SH):
        report = run(project, console, delete=True)
    assert (done.exists(), at_work.exists()) == (False, True)
    assert "no verdict yet" in kept(report)[f"runs/{LATER}"]
    assert paths(run(project, console)) == {f"runs/{LATER}"}


@pytest.mark.parametrize(
    ("lock", "stays"),
    [
        ("mini.lock", {"dist/mini", ".venv-mini", ".cache/compile/mini", f".cache/sources/{'f' * 64}", ".cache/logs"}),
        ("mini.in-use", {"dist/mini", ".venv-mini", ".cache/stack-mini-000000000000", ".cache/models/tiny-1234"}),
        (f"git-vllm-{REVISION}.lock", {f".cache/git/vllm-{REVISION}", f".cache/sources/{'f' * 64}"}),
    ],
)
def test_what_a_command_works_with_stays(project: Project, console: Console, lock: str, stays: set[str]) -> None:
    every = (
        *(".cache/compile/mini", f".cache/sources/{'f' * 64}", ".cache/logs", ".cache/stack-mini-000000000000"),
        *("dist/mini", ".venv-mini", ".cache/models/tiny-1234", f".cache/git/vllm-{REVISION}"),
    )
    for path in every:
        make(project.root / path)
    with locked(project.layout.cache / "locks" / lock):
        report = run(project, console, everything=True, delete=True)
    assert stays <= kept(report).keys()
    assert all((project.root / path).exists() for path in stays)
    assert paths(report) & set(every) == {path for path in every if path not in kept(report)}
    assert f"{lock} is held by pid" in kept(report)[min(stays)]


def test_nobody_begins_to_work_while_it_deletes(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(project)
    deleted, free = [], []

    def look(root: Path, item: str) -> None:
        deleted.append(item)
        for path in (project.layout.mutex, project.layout.in_use):
            with path.open("a") as handle, contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                free.append(path)

    monkeypatch.setattr("scripts.clean.remove", look)
    run(project, console, delete=True)
    assert (deleted, free) == ([f"runs/{folder.name}"], [])
    for path in (project.layout.mutex, project.layout.in_use):
        with path.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_interrupted_deletion_leaves_nothing_that_is_taken_for_whole(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, environment = run_folder(project), make(project.layout.environment, "pyvenv.cfg", "bin/python")

    def stop(name: str, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        run(project, console, runs=True, delete=True)
    with pytest.raises(KeyboardInterrupt):
        removal.remove(project.root, ".venv-mini")
    monkeypatch.undo()
    assert (folder.exists(), environment.exists()) == (False, False)
    left = [f"runs/.partial-{os.getpid()}-{RUN}", f".venv-.partial-{os.getpid()}-mini"]
    assert [(project.root / path).is_dir() for path in left] == [True, True]
    # By the name of a process that has ended, the next one knows that nobody works on it.
    ended = [path.replace(f"-{os.getpid()}-", f"-{ended_pid()}-") for path in left]
    for path, new in zip(left, ended, strict=True):
        (project.root / path).rename(project.root / new)
    report = run(project, console, delete=True)
    assert paths(report) == set(ended)
    assert not any((project.root / path).exists() for path in ended)


def test_what_a_living_command_is_writing_stays(project: Project, console: Console) -> None:
    with living() as pid:
        mine = make(project.layout.sources / f".partial-{pid}-x")
        dead = make(project.layout.sources / f".partial-{ended_pid()}-x")
        report = run(project, console, everything=True, delete=True)
    assert (mine.exists(), dead.exists()) == (True, False)
    assert kept(report)[f".cache/sources/{mine.name}"] == f"pid {pid} works on it"


def ended_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@contextlib.contextmanager
def living(**streams: Any) -> Iterator[int]:
    """A process that waits until it is told to end."""
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, **streams)
    try:
        yield child.pid
    finally:
        child.communicate()


@contextlib.contextmanager
def locked(path: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Another process holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(handle.fileno(),))
    try:
        yield
    finally:
        child.communicate()
