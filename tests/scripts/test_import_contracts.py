"""The import contracts of pyproject.toml, on a project in miniature: each one can be broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.layout import PROJECT_ROOT

PACKAGES = {
    "harness": "harness",
    "scripts": "scripts",
    "smoke": "smoke",
    "smokestack_payload": "harness/payload/smokestack_payload",
}
PLANES = "the build plane and the run plane never import each other"
SUITE = "nothing imports the smoke suite"
HEAVY = "nothing in the tool environment imports the payload or what it stands on"
PAYLOAD = "the payload imports nothing of the tool environment"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(PROJECT_ROOT / "pyproject.toml", tmp_path)
    for folder in PACKAGES.values():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "__init__.py").touch()
    return tmp_path


def lint(project: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(project / "harness" / "payload"), "NO_COLOR": "1"}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)


def test_a_project_that_keeps_them_passes(project: Path) -> None:
    (project / "smoke" / "__init__.py").write_text("import harness\n")
    (project / PACKAGES["smokestack_payload"] / "__init__.py").write_text("import torch\n")
    finished = lint(project)
    assert finished.returncode == 0, finished.stdout


def test_every_import_that_breaks_one_is_found(project: Path) -> None:
    """All in one project, as reading it takes seconds: each module with its one wrong import, by contract."""
    wrong = {
        PLANES: [("harness", "scripts"), ("scripts", "harness")],
        SUITE: [("harness", "smoke")],
        HEAVY: [
            ("harness", "torch"),
            ("scripts", "vllm"),
            ("smoke", "transformers"),
            ("harness", "smokestack_payload"),
        ],
        PAYLOAD: [("smokestack_payload", "harness"), ("smokestack_payload", "pydantic")],
    }
    for package, imported in [pair for pairs in wrong.values() for pair in pairs]:
        (project / PACKAGES[package] / f"takes_{imported}.py").write_text(f"def later():\n    import {imported}\n")
    finished = lint(project)
    assert finished.returncode == 1, finished.stdout
    for contract, pairs in wrong.items():
        assert f"{contract} BROKEN" in finished.stdout
        for package, imported in pairs:
            assert f"{package}.takes_{imported} -> {imported}" in finished.stdout
