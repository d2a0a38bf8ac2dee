"""F01, F02, F05, F08: a trainer that does one thing wrong. Its configuration says which: see `--sabotage`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smoke.faults.outcome import complete, ended
from smoke.faults.record import Record
from smoke.faults.stage import Stage, has_ended
from smoke.runner import Outcome, wait_until

pytestmark = pytest.mark.faults
REFIT_S = 20.0
RENDEZVOUS_S = 10.0


def labels(outcome: Outcome) -> list[Any]:
    observed = [event for event in outcome.events if event["kind"] == "observed"]
    return [engine["engine_label"] for event in observed for engine in event["engines"]]


@pytest.mark.parametrize(
    ("fault", "sabotage", "says"),
    [("F01", "unknown-name", r"status 500.*layers\.0\.nobody"), ("F02", "refused-update", r"status 500.*float31")],
)
def test_an_update_that_fails_poisons_the_engine(
    fault: str, sabotage: str, says: str, stage: Callable[..., Stage], record: Record
) -> None:
    run = stage("--steps", "1", "--sabotage", sabotage, "--refit-timeout", str(REFIT_S))
    injection = record.begin(fault, f"refit 1, {sabotage}")
    began = run.wait_for("step", step=1)["t"]
    with run.unwatched():
        # The engine as the trainer left it, before the run ends it.
        wait_until(lambda: has_ended(run.leader("trainer")), "the trainer's end", REFIT_S + 5)
        assert run.paused(), "not resumed"
        assert run.ask("GET", "engine-0", "/weight_info").json() == {"weight_version": "0"}
    run.wait_for("trainer.error", 5)
    told = run.seen("trainer.error")[0]["t"] - began
    says = f"{says}.*asked afterwards: engine-0 is paused"
    outcome = ended(run, injection, within=REFIT_S + 5, status=40, kinds={"refit"}, says=says, seconds=told)
    failure = outcome.verdict["failure"]
    assert "left paused, not to be used again: http://127.0.0.1:" in failure["what"]
    assert failure["log"], "the log of who failed is named"
    assert "1" not in labels(outcome), "no new version was seen"
    assert [event["version"] for event in outcome.events if event["kind"] == "refit"] == [0]


@pytest.mark.parametrize(
    ("sabotage", "fails", "passes"),
    [
        ("label-without-weights", "policy.weights-match", "policy.versions-"),
        ("weights-without-label", "policy.versions-advance", "policy.weights-"),
    ],
)
def test_f05_label_and_content_fail_apart(
    sabotage: str, fails: str, passes: str, stage: Callable[..., Stage], record: Record
) -> None:
    run = stage("--steps", "1", "--sabotage", sabotage)
    injection = record.begin("F05", sabotage)
    outcome = run.run.wait()
    assert outcome.returncode == 1, outcome.explain()
    assert outcome.verdict["failure"] is None, outcome.explain()
    checks = {check["id"]: check for check in outcome.verdict["checks"]}
    assert checks[fails]["status"] == "fail", checks[fails]
    wrong = {name for name, check in checks.items() if name.startswith(passes) and check["status"] != "pass"}
    assert not wrong, wrong
    failed = {name for name, check in checks.items() if check["status"] == "fail"}
    assert {name.rpartition(".")[0] for name in failed} == {"policy"}, failed
    complete(outcome)
    refitted = [event["t"] for event in outcome.events if event["kind"] == "refit" and event["version"] == 1][-1]
    injection.seconds = outcome.verdict["phases"]["total"] - refitted
    injection.outcome = f"exit 1, {', '.join(sorted(failed))}"


@pytest.mark.parametrize(
    ("sabotage", "says"),
    [
        ("wrong-rank-offset", r"expected ranks \[1\].*joined \[\]"),
        ("world-too-large", r"expected ranks \[1, 2\], joined \[1\], missing \[2\]"),
        ("unreachable-master", r"expected ranks \[1\], joined \[\], missing \[1\]"),
    ],
)
def test_f08_a_rendezvous_that_cannot_be_is_bounded(
    sabotage: str, says: str, stage: Callable[..., Stage], record: Record
) -> None:
    run = stage("--steps", "1", "--sabotage", sabotage, "--refit-timeout", str(RENDEZVOUS_S))
    injection = record.begin("F08", sabotage)
    run.wait_for("observed", version=-1)
    ended(run, injection, within=RENDEZVOUS_S + 5, status=40, kinds={"refit"}, says=says)
