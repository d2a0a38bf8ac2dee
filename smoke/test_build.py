"""The real engine wheel: the manifest's bytes, and the same bytes again from the same published files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoke.runner import ROOT

DIST = ROOT / "dist" / "cpu"
AGAIN_S = 3.0
READ = ("scripts", "stacks", "harness/payload")
"""What a build reads of a checkout, beside the published files in `.cache/sources`."""


def build(root: Path) -> dict[str, Any]:
    """`python -m scripts build` in a checkout: its answer."""
    command = [sys.executable, "-m", "scripts", "build", "--stack", "cpu", "--json"]
    finished = subprocess.run(command, cwd=root, env=os.environ, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(finished.stdout)
    assert answer["ok"], finished.stderr
    return answer


def digests(dist: Path) -> dict[str, str]:
    found = {}
    for wheel in sorted(dist.glob("*.whl")):
        with wheel.open("rb") as handle:
            found[wheel.name] = hashlib.file_digest(handle, "sha256").hexdigest()
    return found


@pytest.fixture(scope="module")
def built() -> dict[str, str]:
    """The digests that the manifest of a finished build names."""
    build(ROOT)
    manifest = json.loads((DIST / "manifest.json").read_text())
    return {artifact["file"]: artifact["sha256"] for artifact in manifest["artifacts"]}


def test_the_artifacts_are_the_manifests_byte_for_byte(built: dict[str, str]) -> None:
    found = digests(DIST)
    assert {name: found.get(name) for name in built} == built
    lines = [line.split() for line in (DIST / "SHA256SUMS").read_text().splitlines()[1:]]
    assert {name: digest for digest, name in lines if name in built} == built


def test_a_second_build_has_nothing_to_do_and_says_so_at_once(built: dict[str, str]) -> None:
    again = build(ROOT)
    assert again["cached"] is True
    assert again["seconds"] < AGAIN_S


def test_another_checkout_makes_the_same_bytes(built: dict[str, str], tmp_path: Path) -> None:
    checkout = tmp_path / "another place"
    for folder in READ:
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / ".cache").mkdir()
    (checkout / ".cache" / "sources").symlink_to(ROOT / ".cache" / "sources")
    answer = build(checkout)
    assert answer["cached"] is False
    assert digests(checkout / "dist" / "cpu") == built
    manifests = [(root / "dist" / "cpu" / "manifest.json").read_text() for root in (ROOT, checkout)]
    assert manifests[0] == manifests[1]
    shutil.rmtree(checkout)
