"""The verdict follows from events alone, has exactly the contract's fields, and maps to one exit status."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness import errors
from harness.events import Failure
from harness.evidence import CHECKS
from harness.report.verdict import Outcome, Verdict, judge_run
from tests.harness.event_factory import Fields, edited, failure, passing_run, run_config, the, without

SOUND = passing_run()


def outcome(run: list[Fields], **config: Any) -> Outcome:
    return judge_run(run, run_config(**config))


def test_a_sound_run_is_a_pass_with_every_version() -> None:
    judged = outcome(SOUND)
    assert (judged.verdict.verdict, judged.exit_code) == ("pass", 0)
    assert judged.verdict.policy_versions == (0, 1, 2, 3, 4)
    assert judged.verdict.failure is None


def test_the_document_has_the_fields_of_the_contract_and_no_other() -> None:
    document = json.loads(json.dumps(outcome(SOUND).verdict.document(), allow_nan=False))
    assert list(document) == [
        "schema",
        "verdict",
        "stack",
        "model",
        "steps",
        "policy_versions",
        "checks",
        "phases",
        "survivors",
        "failure",
    ]
    assert document["schema"] == 1
    assert document["policy_versions"] == [0, 1, 2, 3, 4]
    assert [check["id"] for check in document["checks"]] == list(CHECKS)
    assert set(document["checks"][0]) == {"id", "status", "expected", "found", "why"}
    assert document["phases"] == {
        "install": 0.4,
        "ready": 31.2,
        "train": 11.7,
        "refit": [0.1, 0.11, 0.12, 0.13, 0.14],
        "teardown": 2.4,
        "total": max(event["t"] for event in SOUND),
    }
    assert document["survivors"] == []


def test_a_verdict_can_be_read_back() -> None:
    verdict = outcome(SOUND).verdict
    assert Verdict.model_validate(verdict.document()) == verdict


def test_a_failed_check_is_a_fail() -> None:
    judged = outcome(without(SOUND, "generation", when="after"))
    assert (judged.verdict.verdict, judged.exit_code) == ("fail", 1)
    assert [check.id for check in judged.verdict.failed()] == ["generation.after-update"]


def leave_a_process(run: list[Fields]) -> None:
    the(run, "teardown")["survivors"] = [{"pid": 7, "service": "engine-0", "cmd": "vllm-rs serve"}]


def test_a_survivor_alone_is_the_teardowns_own_exit_status() -> None:
    judged = outcome(edited(SOUND, leave_a_process))
    assert (judged.verdict.verdict, judged.exit_code) == ("fail", 50)
    assert judged.verdict.document()["survivors"] == [{"pid": 7, "service": "engine-0", "cmd": "vllm-rs serve"}]


def test_a_survivor_beside_another_red_check_is_a_failed_check() -> None:
    judged = outcome(edited(without(SOUND, "pins"), leave_a_process))
    assert judged.exit_code == 1


def test_what_ended_the_run_decides_over_what_else_went_wrong() -> None:
    run = [*edited(without(SOUND, "pins"), leave_a_process), failure(kind="refit", exit_code=40).fields()]
    judged = outcome(run)
    assert (judged.verdict.verdict, judged.exit_code) == ("error", 40)
    assert "teardown.clean" in [check.id for check in judged.verdict.failed()]


def test_the_first_failure_is_the_cause() -> None:
    first, second = failure(kind="refit", exit_code=40), failure(kind="interrupted", exit_code=130)
    judged = outcome([first.fields(), second.fields()])
    assert judged.verdict.failure is not None
    assert (judged.verdict.failure.kind, judged.exit_code) == ("refit", 40)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UsageError, 2),
        (errors.DoctorError, 10),
        (errors.InstallError, 20),
        (errors.NotReadyError, 30),
        (errors.ServiceDiedError, 30),
        (errors.DiscoveryError, 31),
        (errors.TrainingError, 40),
        (errors.RefitError, 40),
        (errors.TeardownError, 50),
        (errors.Interrupted, 130),
    ],
)
def test_every_error_has_its_exit_status(error: type[errors.SmokestackError], status: int) -> None:
    judged = outcome([Failure.of(error("it broke", hint="mend it")).fields()])
    assert (judged.verdict.verdict, judged.exit_code) == ("error", status)


def test_a_failure_keeps_all_that_an_error_says_and_the_log_within_the_run_folder(tmp_path: Path) -> None:
    event = failure(log=str(tmp_path / "logs" / "engine-0.log"))
    document = judge_run([event.fields()], run_config(tmp_path)).verdict.document()
    assert document["failure"] == {
        "kind": "refit",
        "what": event.error.what,
        "expected": event.error.expected,
        "found": event.error.found,
        "where": event.error.where,
        "hint": event.error.hint,
        "log": "logs/engine-0.log",
    }


def test_what_an_error_does_not_say_is_null_and_what_a_peer_sent_is_plain() -> None:
    run = [Failure.of(errors.RefitError("it broke", found="HTTP 500: \x1b[31mred")).fields()]
    told = outcome(run).verdict.document()["failure"]
    assert told == {
        "kind": "refit",
        "what": "it broke",
        "expected": None,
        "found": told["found"],
        "where": None,
        "hint": None,
        "log": None,
    }
    assert told["found"].startswith("HTTP 500: ")
    assert "\x1b" not in told["found"]


def test_phases_that_did_not_end_are_null() -> None:
    document = outcome([SOUND[0], failure().fields()]).verdict.document()
    assert document["phases"] == {
        "install": None,
        "ready": None,
        "train": None,
        "refit": [],
        "teardown": None,
        "total": 0.0,
    }


def test_a_time_that_is_no_number_is_null() -> None:
    run = edited(SOUND, lambda r: the(r, "refit", version=2)["seconds"].update(total=math.nan))
    assert outcome(run).verdict.document()["phases"]["refit"] == [0.1, 0.11, None, 0.13, 0.14]


@pytest.mark.parametrize("label", ["default", "1", "02", None])
def test_a_version_that_engine_and_sidecar_do_not_both_name_was_not_observed(label: str | None) -> None:
    run = edited(SOUND, lambda r: the(r, "observed", version=2)["engines"][0].update(sidecar_label=label))
    assert outcome(run).verdict.policy_versions == (0, 1, 3, 4)


def test_a_stack_that_is_kept_up_can_pass() -> None:
    judged = outcome(without(SOUND, "teardown"), keep_up=True)
    assert (judged.verdict.verdict, judged.exit_code) == ("pass", 0)
