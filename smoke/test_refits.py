"""Every other way for weights to reach the engine, on the real CPU stack: the same checks, all passed."""

from __future__ import annotations

from pathlib import Path

from smoke.runner import Outcome, harness

STEPS = 1


def passed(outcome: Outcome, kind: str) -> None:
    """All checks, and the run says of itself which kind it was."""
    assert outcome.returncode == 0, outcome.explain()
    statuses = {check["id"]: check["status"] for check in outcome.verdict["checks"]}
    assert set(statuses.values()) == {"pass"}, statuses
    assert outcome.verdict["policy_versions"] == list(range(STEPS + 1))
    assert (outcome.run_dir / "config.json").read_text().count(f'"refit": "{kind}"') == 1


def hows(outcome: Outcome) -> set[str]:
    """Whose digests the last version was judged by."""
    [engine] = outcome.only("observed", version=STEPS)["engines"]
    return {parameter["how"] for rank in engine["ranks"] for parameter in rank}


def test_a_worker_extension_receives_the_weights_and_keeps_their_version(tmp_path: Path) -> None:
    outcome = harness("smoke", "--steps", str(STEPS), "--refit", "collective-rpc", run_dir=tmp_path / "run")
    passed(outcome, "collective-rpc")
    assert hows(outcome) == {"whole", "part", "multiplied"}, "no digest was asked of a route for weights"


def test_engines_reload_a_checkpoint_that_the_trainer_wrote_before_the_pause(tmp_path: Path) -> None:
    outcome = harness("smoke", "--steps", str(STEPS), "--refit", "filesystem", run_dir=tmp_path / "run")
    passed(outcome, "filesystem")
    refits = [event["seconds"] for event in outcome.events if event["kind"] == "refit"]
    assert len(refits) == STEPS + 1
    assert all(seconds["prepare"] > 0 for seconds in refits), refits
