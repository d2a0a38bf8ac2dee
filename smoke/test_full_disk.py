"""F23: the run folder's disk gets full while the stack starts. It is said; nothing half-written or alive stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from smoke.runner import harness, processes_of
from tests.small_disk import small_disk

ROOM = "100k"
"""More than the install's logs take, less than those of a started stack."""


@pytest.fixture(name="small_disk")
def disk(tmp_path: Path) -> Iterator[Path]:
    """Too small for a run."""
    with small_disk(tmp_path / "small", ROOM) as folder:
        yield folder


def test_a_run_on_a_full_disk_says_so_and_leaves_nothing(small_disk: Path) -> None:
    outcome = harness("smoke", "--steps", "1", "--json", run_dir=small_disk / "run")
    assert outcome.returncode == 10, outcome.explain()
    assert "No space left on device" in outcome.stderr
    told = json.loads(outcome.stdout)
    assert told["verdict"] == "error"
    assert told["failure"]["hint"].startswith("free some space")
    assert {check["id"]: check["status"] for check in told["checks"]}["teardown.clean"] == "pass"
    written = outcome.run_dir / "verdict.json"
    assert not written.exists() or json.loads(written.read_text()) == told
    assert processes_of(outcome.events) == []
    assert not Path(json.loads((outcome.run_dir / "config.json").read_text())["tmp_dir"]).exists()
