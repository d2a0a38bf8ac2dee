"""`--control plain-vllm`: the same training behind Dynamo and against the engine alone."""

from __future__ import annotations

import json
from pathlib import Path

from smoke.runner import assert_nothing_left, harness, read_events


def test_both_runs_pass_and_stand_side_by_side(tmp_path: Path) -> None:
    done = harness("smoke", "--json", "--steps", "1", "--control", "plain-vllm", run_dir=tmp_path / "run")
    assert done.returncode == 0, done.explain()
    verdict = json.loads(done.stdout)
    assert verdict == done.verdict
    control = verdict["control"]
    assert (verdict["verdict"], control["verdict"], control["failed"]) == ("pass", "pass", [])
    assert control["not_judged"] == ["discovery.topology"]
    started = [
        event["service"] for event in read_events(done.run_dir / "control") if event["kind"] == "service.started"
    ]
    assert sorted(started) == ["engine-0", "trainer"], "nothing of Dynamo"
    [step] = control["steps"]
    assert step["run"]["tokens"] > 0
    assert step["rollouts"] == 64
    assert step["same_rollouts"] > 32, (
        "the same weights and the same seeds; batches that meet otherwise round otherwise"
    )
    if step["same_rollouts"] == step["rollouts"]:
        ours, theirs = ({k: v for k, v in step[who].items() if k != "rollout_s"} for who in ("run", "control"))
        assert ours == theirs, "and the same training"
    assert [pair["version"] for pair in control["refits"]] == [0, 1]
    requests = control["requests"]
    assert requests["count"] == 50
    assert requests["ratio_to_same_engine"] > 1, requests
    assert requests["ratio_to_control"] > 0 and requests["ratio_in_rollouts"] > 0
    assert_nothing_left(done)
