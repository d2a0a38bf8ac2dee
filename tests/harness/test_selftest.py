"""The selftest's judgement: too few red checks, too many, another end or other words are all not as declared."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import build_parser
from harness.config import RefitKind
from harness.errors import DoctorError, Interrupted
from harness.models import ModelChoice
from harness.report.verdict import Outcome, judge_run
from harness.request import Request
from harness.sabotage import SABOTAGES, Sabotage, named, selftest
from harness.sabotage.judgement import judge
from harness.sabotage.selftest import document, run_all
from harness.signals import InterruptSignals
from tests.harness.event_factory import Fields, edited, failure, passing_run, run_config, the

PAUSED = Sabotage("left-paused", "as declared", "trainer", ("engine.not-paused",), ("is paused",))


def paused(run: list[Fields]) -> None:
    the(run, "observed", version=4)["engines"][0]["paused"] = True


def unlabelled(run: list[Fields]) -> None:
    the(run, "observed", version=2)["engines"][0]["engine_label"] = "1"


def outcome(*changes: Any, sabotage: str | None = "left-paused") -> Outcome:
    config = run_config(sabotage=sabotage)
    run = passing_run(config)
    for change in changes:
        run = edited(run, change)
    return judge_run(run, config)


def test_exactly_the_declared_check_in_the_declared_words_is_caught() -> None:
    row = judge(PAUSED, outcome(paused))
    assert (row.caught, row.red, row.problems) == (True, ("engine.not-paused",), ())


def test_too_few_is_wrong() -> None:
    row = judge(PAUSED, outcome())
    assert not row.caught
    assert "not red: engine.not-paused" in row.problems
    assert "exit status 0" in row.problems


def test_too_many_is_wrong() -> None:
    assert judge(PAUSED, outcome(paused, unlabelled)).problems == ("red as well: policy.versions-advance",)


def test_other_words_are_wrong() -> None:
    silent = Sabotage("left-paused", "", "trainer", ("engine.not-paused",), ("the moon",))
    assert judge(silent, outcome(paused)).problems == (
        "gives another reason: engine.not-paused says nothing of 'the moon'",
    )


def test_words_of_a_passed_check_do_not_count() -> None:
    proud = Sabotage("left-paused", "", "trainer", ("engine.not-paused",), ("mean reward",))
    assert not judge(proud, outcome(paused)).caught


def test_another_end_is_wrong() -> None:
    def ends(run: list[Fields]) -> None:
        run.append(failure().model_dump(mode="json"))

    row = judge(PAUSED, outcome(paused, ends))
    assert row.ended_in is not None
    assert f"ended in {row.ended_in}, declared no failure" in row.problems
    words = {"engine.not-paused": ("is paused",), row.ended_in: (outcome(ends).run.failure.what,)}
    declared = Sabotage("left-paused", "", "trainer", ("engine.not-paused",), words, ends_in=row.ended_in)
    assert judge(declared, outcome(paused, ends)).caught
    assert "ended in no failure" in judge(declared, outcome(paused)).problems[0]


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.name)
def test_a_run_in_which_nothing_was_done_is_not_caught(sabotage: Sabotage) -> None:
    """Neither is one that ended in the declared way for a reason of its own."""

    def ends(run: list[Fields]) -> None:
        event = failure().model_dump(mode="json")
        event["error"] |= {"kind": sabotage.ends_in, "what": "something else", "found": None, "where": None}
        run.append(event)

    untouched = judge(sabotage, outcome(sabotage=sabotage.name))
    assert {"exit status 0", *(f"not red: {check}" for check in sabotage.fails)} <= set(untouched.problems)
    if sabotage.ends_in is not None:
        assert "ended in no failure, declared" in "; ".join(untouched.problems)
        problems = judge(sabotage, outcome(ends, sabotage=sabotage.name)).problems
        words = sabotage.reasons[sabotage.ends_in][0]
        assert f"gives another reason: {sabotage.ends_in} says nothing of {words!r}" in problems


ENDS = {
    "wrong-rank-offset": "an engine refused to join: status 500: 'rank 2 is outside the group: expected ranks [1]';"
    " expected ranks [1], joined [], missing [1]",
    "world-too-large": "no more ranks joined within 16 s; expected ranks [1, 2], joined [1], missing [2]",
    "unreachable-master": "no more ranks joined within 16 s; expected ranks [1], joined [], missing [1]",
    "unknown-name": "status 500: There is no module or parameter named 'layers.0.nobody' in Qwen3Model",
    "refused-update": "status 500: ''float31' is not a torch dtype'",
}
"""What real runs said at their end."""


@pytest.mark.parametrize("name", ENDS)
def test_no_fault_of_a_refit_is_taken_for_another(name: str) -> None:
    def ends(run: list[Fields]) -> None:
        event = failure().model_dump(mode="json")
        event["error"] |= {"kind": "refit", "what": ENDS[name], "found": None, "where": None}
        run.append(event)

    judged = {one.name: judge(one, outcome(ends, sabotage=one.name)) for one in SABOTAGES if one.name in ENDS}
    assert [other for other, row in judged.items() if row.caught] == [name]


def test_a_declared_check_that_is_red_for_another_reason_is_wrong() -> None:
    """Also when another of the checks says what it should have said."""
    words = {"engine.not-paused": ("is paused",), "policy.versions-advance": ("version 2: engine label '1'",)}
    both = Sabotage("left-paused", "", "trainer", tuple(words), words)
    assert judge(both, outcome(paused, unlabelled)).caught
    swapped = dict(zip(words, reversed(words.values()), strict=True))
    assert judge(replace(both, words=swapped), outcome(paused, unlabelled)).problems == (
        "gives another reason: engine.not-paused says nothing of \"version 2: engine label '1'\"",
        "gives another reason: policy.versions-advance says nothing of 'is paused'",
    )


def test_a_verdict_that_does_not_say_so_is_wrong() -> None:
    assert judge(PAUSED, outcome(paused, sabotage=None)).problems == ("the verdict says that the sabotage was None",)


def request(tmp_path: Path) -> Request:
    return Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=tmp_path, quiet=True)


def test_each_gets_a_run_of_its_own_and_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(one: Request) -> Outcome:
        return outcome(paused, sabotage=one.sabotage)

    other = Sabotage("weights-without-label", "", "trainer", ("policy.versions-advance",), ("label",))
    rows = run_all([PAUSED, other], request(tmp_path), run)
    assert [(row.sabotage.name, row.caught) for row in rows] == [
        ("left-paused", True),
        ("weights-without-label", False),
    ]
    told = capsys.readouterr().err
    assert "CAUGHT  left-paused" in told
    assert "not red: policy.versions-advance" in told
    assert "1 of 2 sabotages caught as declared" in told
    [first, second] = json.loads(json.dumps(document(rows)))["rows"]
    assert (first["caught"], second["red"]) == (True, ["engine.not-paused"])


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        (None, [None, None, "filesystem"]),
        ("collective-rpc", ["collective-rpc", "collective-rpc", "filesystem"]),
        ("filesystem", ["filesystem", "native", "filesystem"]),
    ],
)
def test_each_runs_in_a_kind_of_refit_that_has_such_a_fault(
    asked: RefitKind | None, kinds: list[str | None], tmp_path: Path
) -> None:
    def run(one: Request) -> Outcome:
        (tmp_path / str(one.sabotage)).write_text(str(one.refit))
        return outcome(paused, sabotage=one.sabotage)

    chosen = [one for name in ("left-paused", "wrong-rank-offset", "half-a-checkpoint") if (one := named(name))]
    run_all(chosen, replace(request(tmp_path), refit=asked), run)
    assert [(tmp_path / one.name).read_text() for one in chosen] == [str(kind) for kind in kinds]


def test_a_run_that_cannot_be_begun_is_a_row_and_the_others_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(one: Request) -> Outcome:
        if one.sabotage == "first":
            raise DoctorError("no space left")
        if one.sabotage == "second":
            os._exit(7)
        return outcome(paused, sabotage=one.sabotage)

    rows = run_all([replace(PAUSED, name="first"), replace(PAUSED, name="second"), PAUSED], request(tmp_path), run)
    assert [row.caught for row in rows] == [False, False, True]
    told = capsys.readouterr().err
    assert "could not be run: no space left" in told
    assert "its process ended without an account: exit status 7" in told


def test_an_interrupt_between_two_runs_ends_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(one: Request) -> Outcome:
        if one.sabotage == "late":
            raise Interrupted("before the run began")
        return outcome(paused, sabotage=one.sabotage)

    late = replace(PAUSED, name="late")
    assert [row.caught for row in run_all([PAUSED, late, late], request(tmp_path), run)] == [True]
    told = capsys.readouterr().err
    assert "interrupted, 2 of 3 not run to their end" in told
    assert "1 of 3 sabotages caught as declared" in told


def test_an_interrupt_ends_the_whole(tmp_path: Path) -> None:
    def run(one: Request) -> Outcome:
        def interrupted(run: list[Fields]) -> None:
            event = failure().model_dump(mode="json")
            event["error"] |= {"kind": "interrupted", "exit_code": 130}
            run.append(event)

        return outcome(interrupted, sabotage=one.sabotage)

    assert run_all([PAUSED, PAUSED], request(tmp_path), run) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupt_is_the_exit_status_even_when_it_kills_a_run(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_one: Request) -> Outcome:
        with InterruptSignals() as signals:
            os.kill(os.getppid(), signal.SIGTERM)
            assert signals.interrupt.wait(20)
        os.kill(os.getpid(), number)
        raise Interrupted("asked to end")

    monkeypatch.setattr(selftest, "run_once", run)
    args = build_parser().parse_args(["selftest", "--sabotage", "left-paused"])
    assert selftest.selftest(args) == 130


def test_rows_that_cannot_be_told_leave_no_run_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(one: Request) -> Outcome:
        if one.sabotage == "endless":
            with InterruptSignals() as signals:
                (tmp_path / "begun").touch()
                assert signals.interrupt.wait(20)
                (tmp_path / "ended").touch()
            raise Interrupted("asked to end")
        ends = time.monotonic() + 20
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < ends
        return outcome(paused, sabotage=one.sabotage)

    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(selftest, "tell", closed)
    with pytest.raises(BrokenPipeError):
        run_all([PAUSED, replace(PAUSED, name="endless")], request(tmp_path), run, 2)
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(("caught", "status"), [(True, 0), (False, 1)])
def test_a_row_that_is_not_as_declared_is_the_exit_status(
    caught: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(one: Request) -> Outcome:
        change = [unlabelled] if caught else [paused]
        assert (one.steps, one.quiet, one.deadlines.refit_s) == (selftest.STEPS, True, selftest.REFIT_S)
        return outcome(*change, sabotage=one.sabotage)

    declared = Sabotage("weights-without-label", "", "trainer", ("policy.versions-advance",), ("label",))
    monkeypatch.setattr(selftest, "run_once", run)
    monkeypatch.setattr(selftest, "named", lambda _name: declared)
    args = build_parser().parse_args(["selftest", "--sabotage", "weights-without-label"])
    assert selftest.selftest(args) == status
