"""Sabotages as data: each names real checks or an end, can be asked for, and by nobody who did not mean to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from harness import errors
from harness.cli import build_parser
from harness.config import RunConfig
from harness.credentials import NO_CREDENTIALS
from harness.report import junit
from harness.report.narration import narrate
from harness.report.verdict import Verdict, judge_run
from harness.request import Request
from harness.sabotage import SABOTAGES, TRAINER_SABOTAGES, UNSABOTAGED, Sabotage, docs, for_trainer, named
from harness.sabotage.by_trainer import FAILING_REFITS
from harness.sabotage.commands import COMMANDS
from harness.sabotage.declaration import Where
from harness.sabotage.docs import ALL_CHECKS, JUDGED, turned_red
from tests.harness.event_factory import passing_run, run_config

PAYLOAD = Path(__file__).resolve().parents[2] / "harness" / "payload" / "smokestack_payload" / "sabotage.py"
BY_NAME = {one.name: one for one in SABOTAGES}
each = pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.name)


def test_the_trainers_names_are_those_of_the_payload() -> None:
    names = re.findall(r'^[A-Z_]+ = "([a-z-]+)"$', PAYLOAD.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(TRAINER_SABOTAGES)


@each
def test_the_trainer_is_told_of_its_own_only(sabotage: Sabotage) -> None:
    assert for_trainer(sabotage.name) == (sabotage.name if sabotage.where == "trainer" else None)
    assert for_trainer(None) is None


def test_a_failing_refit_turns_no_check_red() -> None:
    assert {(one.fails, one.ends_in) for one in FAILING_REFITS} == {((), "refit")}


def test_names_are_given_once() -> None:
    assert len(BY_NAME) == len(SABOTAGES)


@each
def test_each_names_checks_that_exist_or_the_end_of_the_run(sabotage: Sabotage) -> None:
    assert set(sabotage.fails) <= set(ALL_CHECKS)
    assert sabotage.fails or sabotage.ends_in
    assert all(words and all(text.strip() for text in words) for words in sabotage.reasons.values())
    assert sabotage.where in get_args(Where)


def test_where_several_fail_each_has_words_of_its_own() -> None:
    shared = Sabotage("one", "", "trainer", ("policy.weights-match", "policy.mismatch"), ("version 2",))
    for wrong in (shared, replace(shared, words={"policy.mismatch": ("version 2",)})):
        with pytest.raises(ValueError, match="one: words of policy"):
            _ = wrong.reasons
    ended = replace(shared, fails=("policy.mismatch",), ends_in="refit")
    with pytest.raises(ValueError, match=r"words of policy\.mismatch, while what fails is policy\.mismatch, refit"):
        _ = ended.reasons
    words = {"policy.mismatch": ("version 2",), "refit": ("status 500",)}
    assert replace(ended, words=words).reasons == words
    assert replace(ended, fails=(), words=("status 500",)).reasons == {"refit": ("status 500",)}


@each
def test_each_end_is_a_kind_of_failure(sabotage: Sabotage) -> None:
    kinds = {kind.kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "kind")}
    assert sabotage.ends_in is None or sabotage.ends_in in kinds


def test_content_and_labels_never_fail_for_each_others_reason() -> None:
    for one in SABOTAGES:
        kinds = {check.split("-")[0] for check in one.fails if check.startswith(("policy.weights", "policy.versions"))}
        assert len(kinds) <= 1, one.name


def test_every_check_has_a_sabotage_or_a_reason_why_not() -> None:
    assert docs.uncovered(SABOTAGES, JUDGED, UNSABOTAGED) == []
    covered = {check for one in SABOTAGES for check in turned_red(one)}
    assert set(UNSABOTAGED) == set(JUDGED) - covered


def test_a_check_that_is_judged_otherwise_of_a_command_has_a_sabotage_of_such_a_run() -> None:
    judged = {"policy.versions-advance", "policy.weights-changed", "engine.not-paused"}
    assert set(docs.OF_COMMANDS) == judged
    ours = [one for one in SABOTAGES if not one.as_command]
    assert docs.uncovered(ours, JUDGED, {**UNSABOTAGED, "training.command": ""}) == [
        f"{c} with --trainer" for c in docs.OF_COMMANDS
    ]
    commands = [one for one in SABOTAGES if one.as_command]
    assert {check for one in commands for check in turned_red(one)}.isdisjoint(judged)


def test_the_sabotages_of_a_command_are_those_that_are_made_by_one() -> None:
    assert {one.name for one in SABOTAGES if one.as_command} == set(COMMANDS)


def test_a_check_without_one_is_found_and_listed() -> None:
    assert docs.uncovered(SABOTAGES, ("policy.new",), {}) == ["policy.new"]
    assert "| `policy.new` | **none yet**" in docs.page(SABOTAGES, ("policy.new",))


def test_the_page_is_that_of_the_registry() -> None:
    assert docs.PAGE.read_text() == docs.page()


def test_a_stale_page_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "sabotage.md"
    assert docs.main(["--check", "--page", str(page)]) == docs.STALE
    assert docs.main(["--write", "--page", str(page)]) == 0
    capsys.readouterr()
    assert docs.main(["--check", "--page", str(page)]) == 0
    page.write_text(page.read_text() + "more\n")
    assert docs.main(["--check", "--page", str(page)]) == docs.STALE
    assert "is stale" in capsys.readouterr().err


@each
def test_each_can_be_asked_for(sabotage: Sabotage) -> None:
    kind, engines = sabotage.refits[0], str(sabotage.engines)
    asked = build_parser().parse_args(["smoke", "--refit", kind, "--sabotage", sabotage.name, "--engines", engines])
    assert Request.from_args(asked).sabotage == sabotage.name
    assert build_parser().parse_args(["selftest", "--sabotage", sabotage.name]).sabotage == [sabotage.name]


def test_by_default_there_is_none_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SABOTAGE", "SMOKESTACK_SABOTAGE", "VLLM_SABOTAGE"):
        monkeypatch.setenv(name, "left-paused")
    assert Request.from_args(build_parser().parse_args(["smoke"])).sabotage is None
    assert RunConfig.model_fields["sabotage"].default is None
    assert named(None) is None


def test_nothing_of_the_sabotage_code_reads_the_environment() -> None:
    folder = Path(docs.__file__).parent
    for file in [*folder.glob("*.py"), PAYLOAD, PAYLOAD.with_name("spoiled.py")]:
        assert "environ" not in re.sub(r"environment", "", file.read_text()), file


def test_nonsense_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as left:
        build_parser().parse_args(["smoke", "--sabotage", "nonsense"])
    assert left.value.code == 2


def test_a_sabotaged_run_says_so_wherever_it_is_looked_at() -> None:
    config = run_config(sabotage="left-paused")
    outcome = judge_run(passing_run(config), config)
    document = outcome.verdict.document()
    assert document["sabotage"] == "left-paused"
    assert Verdict.model_validate(document) == outcome.verdict
    assert b'name="sabotage" value="left-paused"' in junit.render(outcome, NO_CREDENTIALS.conceal)
    first = narrate(outcome.run.entries[0])
    assert first is not None and first.startswith("SABOTAGED on purpose (left-paused)")
    assert config.model_dump()["sabotage"] == "left-paused"


def test_another_run_says_nothing_of_sabotage() -> None:
    outcome = judge_run(passing_run(), run_config())
    assert "sabotage" not in outcome.verdict.document()
    assert b"sabotage" not in junit.render(outcome, NO_CREDENTIALS.conceal)
    assert "SABOTAGED" not in str(narrate(outcome.run.entries[0]))


def test_the_rendezvous_takes_no_longer_than_a_refit_may() -> None:
    def deadlines(*options: str) -> tuple[float, float]:
        asked = Request.from_args(build_parser().parse_args(["smoke", *options])).deadlines
        return asked.rendezvous_s, asked.refit_s

    assert deadlines() == (60.0, 120.0)
    assert deadlines("--refit-timeout", "20") == (20.0, 20.0)
    assert deadlines("--refit-timeout", "200") == (60.0, 200.0)
