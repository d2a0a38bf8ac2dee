"""`--trainer`: a trainer that knows nothing of us but its variables, against the real stack."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from smoke.runner import ROOT, Outcome, assert_nothing_left, harness

EXAMPLE = ROOT / "examples" / "http_weight_sync" / "train.py"
PAUSES = """
import os, urllib.request
url = os.environ["SMOKESTACK_ADMIN_URLS"] + "/pause?mode=wait"
urllib.request.urlopen(urllib.request.Request(url, method="POST")).read()
print("paused, and gone")
"""


def statuses(outcome: Outcome) -> dict[str, str]:
    return {check["id"]: check["status"] for check in outcome.verdict["checks"]}


def test_vllms_own_http_client_refits_the_stack(tmp_path: Path) -> None:
    command = shlex.join([str(ROOT / ".venv-cpu" / "bin" / "python"), str(EXAMPLE)])
    done = harness("smoke", "--json", "--steps", "2", "--trainer", command, run_dir=tmp_path / "run")
    assert done.returncode == 0, done.explain()
    verdict = json.loads(done.stdout)
    assert verdict == done.verdict
    assert (verdict["verdict"], verdict["trainer"]) == ("pass", command)
    assert verdict["policy_versions"][-1] == 2
    passed = {check for check, status in statuses(done).items() if status == "pass"}
    assert {"training.command", "policy.versions-advance", "policy.weights-changed", "engine.not-paused"} <= passed
    assert passed.isdisjoint(verdict["not_judged"])
    assert {check["why"].split(":")[0] for check in verdict["checks"] if check["id"] in verdict["not_judged"]} == {
        "not judged"
    }
    assert "step 2: " in (done.run_dir / "logs" / "trainer.log").read_text()
    assert_nothing_left(done)


def test_a_command_that_pauses_and_leaves_fails_for_what_it_left(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-c", PAUSES])
    done = harness("smoke", "--trainer", command, run_dir=tmp_path / "run")
    assert done.returncode == 1, done.explain()
    assert {check for check, status in statuses(done).items() if status == "fail"} == {
        "policy.versions-advance",
        "policy.weights-changed",
        "engine.not-paused",
        "generation.after-update",
    }
    assert (done.run_dir / "logs" / "trainer.log").read_text() == "paused, and gone\n"
    assert_nothing_left(done)
