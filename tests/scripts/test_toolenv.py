"""The tool environment: made once per lock, and never half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import toolenv

# Logs its arguments, makes what `uv venv` makes, and fails at `pip sync` while the file `broken` exists.
UV = """#!/bin/sh
echo "$*" >> "{log}"
case "$1" in
venv) for last; do :; done; mkdir -p "$last/bin"; : > "$last/bin/python" ;;
pip) test ! -e "{broken}" ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "a checkout"
    lock = root / "scripts" / "requirements" / "tool.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("one==1\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    uv = programs / "uv"
    uv.write_text(UV.format(log=tmp_path / "calls", broken=tmp_path / "broken"))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return root


def calls(root: Path) -> list[list[str]]:
    log = root.parent / "calls"
    return [line.split()[:2] for line in log.read_text().splitlines()] if log.exists() else []


def test_it_is_made_by_a_hash_checked_sync(root: Path) -> None:
    folder = toolenv.ensure(root)
    assert folder == str(root / ".nox" / "tool" / "bin")
    assert calls(root) == [["venv", "--quiet"], ["pip", "sync"]]
    assert "--require-hashes" in (root.parent / "calls").read_text()


def test_it_is_made_once(root: Path) -> None:
    toolenv.ensure(root)
    toolenv.ensure(root)
    assert len(calls(root)) == 2


def test_a_pip_that_does_not_answer_ends_it_with_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_python: str) -> dict[str, str]:
        raise toolenv.indexes.PipSilentError("`python -m pip config list` did not end within 60 s")

    monkeypatch.setattr(toolenv.indexes, "read_pip_config", hang)
    with pytest.raises(SystemExit, match="noxfile: `python -m pip config list` did not end within 60 s"):
        toolenv.ensure(root)
    assert calls(root) == []


def test_another_lock_makes_it_again(root: Path) -> None:
    toolenv.ensure(root)
    (root / "scripts" / "requirements" / "tool.lock").write_text("one==2\n")
    toolenv.ensure(root)
    assert len(calls(root)) == 4


def test_a_moved_checkout_makes_it_again_since_its_programs_name_their_place(root: Path) -> None:
    toolenv.ensure(root)
    moved = root.rename(root.with_name("moved"))
    toolenv.ensure(moved)
    assert len(calls(moved)) == 4


def test_a_failed_one_is_not_taken_for_a_finished_one(root: Path) -> None:
    broken = root.parent / "broken"
    broken.touch()
    with pytest.raises(SystemExit, match="`uv pip sync` ended with 1"):
        toolenv.ensure(root)
    broken.unlink()
    toolenv.ensure(root)
    assert len(calls(root)) == 4


def test_one_that_lost_its_python_is_made_again(root: Path) -> None:
    toolenv.ensure(root)
    (root / ".nox" / "tool" / "bin" / "python").unlink()
    toolenv.ensure(root)
    assert len(calls(root)) == 4


def test_without_uv_the_message_names_the_way_that_needs_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match=r"\./noxw"):
        toolenv.ensure(root)
