"""F11: two complete runs at once, and bystanders whose names look like the stack's."""

from __future__ import annotations

import json
from pathlib import Path

from smoke.bystanders import Bystanders
from smoke.runner import (
    SECRETS,
    WITH_KEY,
    Command,
    assert_nothing_left,
    harness,
    processes_of,
    read_events,
    secrets_found,
)


def test_two_runs_and_the_bystanders_do_not_disturb_each_other(
    bystanders: Bystanders, model_folder: Path, tmp_path: Path
) -> None:
    """One run, of the caller's own model and with an API key, is kept up: the other must not touch it."""
    options = ("--steps", "1", "--keep-up", "--model", str(model_folder), *WITH_KEY)
    kept = Command("smoke", *options, run_dir=tmp_path / "kept", env=SECRETS)
    try:
        _check_both(kept, tmp_path)
    finally:
        down = harness("down", run_dir=kept.run_dir)
    assert down.returncode == 0, down.explain()
    assert processes_of(read_events(kept.run_dir)) == []
    bystanders.assert_untouched()


def _check_both(kept: Command, tmp_path: Path) -> None:
    ended = Command("smoke", "--steps", "8", run_dir=tmp_path / "ended").wait()
    assert ended.returncode == 0, ended.explain()
    assert ended.verdict["policy_versions"] == list(range(9))
    assert_nothing_left(ended)

    standing = kept.wait()
    assert standing.returncode == 0, standing.explain()
    checks = {check["id"]: check["status"] for check in standing.verdict["checks"]}
    assert [check for check, status in checks.items() if status != "pass"] == ["teardown.clean"]
    assert checks["teardown.clean"] == "skip"
    assert secrets_found(standing.run_dir) == []
    (document,) = json.loads(harness("status", "--json", run_dir=standing.run_dir).stdout)
    assert document["alive"] == dict.fromkeys(("etcd", "engine-0", "frontend", "sidecar-0"), True)
