"""F18: a checkout under a long path with spaces, a TMPDIR as long; and a Ctrl-C in the middle of its first install."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from smoke.runner import ROOT, Command, assert_nothing_left, read_events, wait_until

LONG = "a path of more than one hundred and fifty characters, with spaces in it, " + "x" * 80


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project's own files in a far place, with the wheels that are already here."""
    copy = tmp_path / LONG / "smokestack"
    listed = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    shutil.copytree(ROOT / ".cache" / "sources", copy / ".cache" / "sources", copy_function=os.link)
    return copy


def test_an_interrupted_first_install_and_then_a_whole_run(checkout: Path, tmp_path: Path) -> None:
    tmpdir = tmp_path / LONG / "tmp"
    tmpdir.mkdir()
    environment = {"TMPDIR": str(tmpdir)}

    first = Command("smoke", run_dir=checkout / "runs" / "first", root=checkout, env=environment)
    stamp = checkout / ".venv-cpu" / "smokestack-install.json"
    wait_until((checkout / ".venv-cpu" / "lib").is_dir, "the install to begin", 120)
    first.send(signal.SIGINT)
    interrupted = first.wait(60)
    assert interrupted.returncode == 130, interrupted.explain()
    assert interrupted.verdict["failure"]["kind"] == "interrupted"
    assert not stamp.exists()
    assert [e for e in read_events(first.run_dir) if e["kind"] == "service.started"] == []

    second = Command("smoke", "--steps", "1", run_dir=checkout / "runs" / "second", root=checkout, env=environment)
    outcome = second.wait()
    assert outcome.returncode == 0, outcome.explain()
    assert outcome.verdict["policy_versions"] == [0, 1]
    assert_nothing_left(outcome)
    assert list(tmpdir.iterdir()) == []
    assert stamp.exists()
