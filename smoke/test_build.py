"""The real engine wheel: the manifest's bytes, the same again in another place, on a machine that lacks nothing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoke.runner import ROOT

DIST = ROOT / "dist" / "cpu"
AGAIN_S = 3.0


def ask(*arguments: str) -> dict[str, Any]:
    """The JSON answer of a command of the build plane that must end well."""
    command = [sys.executable, *arguments]
    finished = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def build() -> dict[str, Any]:
    """`python -m scripts build` here: its answer."""
    return ask("-m", "scripts", "build", "--stack", "cpu", "--json")


def digests(dist: Path) -> dict[str, str]:
    found = {}
    for wheel in sorted(dist.glob("*.whl")):
        with wheel.open("rb") as handle:
            found[wheel.name] = hashlib.file_digest(handle, "sha256").hexdigest()
    return found


@pytest.fixture(scope="module")
def built() -> dict[str, str]:
    """The digests that the manifest of a finished build names."""
    build()
    manifest = json.loads((DIST / "manifest.json").read_text())
    return {artifact["file"]: artifact["sha256"] for artifact in manifest["artifacts"]}


def test_the_artifacts_are_the_manifests_byte_for_byte(built: dict[str, str]) -> None:
    found = digests(DIST)
    assert {name: found.get(name) for name in built} == built
    lines = [line.split() for line in (DIST / "SHA256SUMS").read_text().splitlines()[1:]]
    assert {name: digest for digest, name in lines if name in built} == built


def test_a_second_build_has_nothing_to_do_and_says_so_at_once(built: dict[str, str]) -> None:
    again = build()
    assert again["cached"] is True
    assert again["seconds"] < AGAIN_S


def test_two_builds_in_different_places_are_equal_file_by_file() -> None:
    report = ask("-m", "scripts", "repro", "--stack", "cpu", "--json")
    levels = {entry["file"]: entry["level"] for entry in report["files"]}
    assert levels.keys() == {path.name for path in DIST.iterdir()}
    assert set(levels.values()) == {"different-path equal"}


def test_this_machine_lacks_nothing_for_this_stack() -> None:
    report = ask("-m", "scripts.doctor", "--stack", "cpu", "--json")
    assert {check["status"] for check in report["checks"]} <= {"ok", "warn", "skip"}
    assert len(report["checks"]) > 50
