"""A run and its control: two whole runs, one outcome that is no better than either, and their numbers side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.cli import build_parser
from harness.control import with_control
from harness.errors import UsageError
from harness.evidence import CHECKS, Expectation, evaluate
from harness.models import ModelChoice
from harness.report.console import Console
from harness.report.side_by_side import comparison_table, ending_line, request_lines
from harness.report.verdict import Outcome, judge_run
from harness.request import Request
from harness.services.context import TRAINER
from tests.harness.bench import CLEAN, Bench, leftovers, trainer_running
from tests.harness.event_factory import Fields, edited, failure, passing_run, run_config, the
from tests.harness.evidence_edits import Edit, drop, put, put_engine, red

CONTROL = run_config(serving="plain-vllm")
WANT = Expectation.of(CONTROL)


def answers(*tokens: str, seconds: float = 0.2) -> list[Any]:
    return [None if not name else {"tokens_sha256": name * 64, "tokens": 3, "seconds": seconds} for name in tokens]


def timed(via: str, *seconds: float) -> Fields:
    return {"t": 99.0, "source": "observer", "kind": "request.times", "via": via, "seconds": list(seconds)}


def first_run() -> list[Fields]:
    run = passing_run()
    for step in (event for event in run if event["kind"] == "step"):
        step["answers"] = answers("a", "b", "c", "d", seconds=0.3)
    return [*run, timed("frontend", 0.030, 0.010, 0.020), timed("engine", 0.005, 0.015, 0.010)]


def control_run() -> list[Fields]:
    """As the observer finds an engine that nobody has registered."""
    run = [event for event in passing_run(CONTROL) if event["kind"] != "topology"]
    gone = {"etcd", "frontend", "sidecar-0"}
    run = [event for event in run if event.get("service") not in gone]
    for event in run:
        if event["kind"] in {"processes", "listening"}:
            name = "processes" if event["kind"] == "processes" else "sockets"
            event[name] = [one for one in event[name] if one["service"] not in gone]
        for engine in event["engines"] if event["kind"] in {"observed", "destroyed", "perturbation.observed"} else ():
            engine.update(system_url="", sidecar_label=None, sidecar_paused=None)
        if event["kind"] == "step":
            event["answers"] = answers("a", "b", "x", "d", seconds=0.2)
    the(run, "refit", version=0)["seconds"]["total"] = 0.05
    return [*run, timed("engine", 0.008, 0.008, 0.012)]


class TestEvidence:
    def test_the_engine_alone_passes_without_discovery_and_sidecars(self) -> None:
        checks = {check.id: check for check in evaluate(control_run(), WANT)}
        assert checks.keys() == CHECKS.keys()
        assert {check.id for check in checks.values() if check.status != "pass"} == {"discovery.topology"}
        assert checks["discovery.topology"].status == "skip"
        assert checks["discovery.topology"].why == "not judged: the engine alone is in no discovery"
        assert checks["policy.versions-advance"].found == "labels 0 1 2 3 4"

    @pytest.mark.parametrize(
        ("check_id", "edit"),
        [
            ("policy.versions-advance", put_engine(2, engine_label="1")),
            ("policy.versions-advance", put_engine(2, engine_label=None)),
            ("engine.not-paused", put_engine(4, paused=True)),
            ("generation.after-update", put("generation", {"when": "after"}, status=500)),
            ("stack.same-processes", drop("processes", when="end")),
        ],
    )
    def test_it_fails_for_what_is_wrong_with_it(self, check_id: str, edit: Edit) -> None:
        assert red({check.id: check for check in evaluate(edited(control_run(), edit), WANT)}) == {check_id}

    def test_a_run_with_dynamo_needs_its_sidecars_still(self) -> None:
        checks = {check.id: check for check in evaluate(control_run(), Expectation.of(run_config()))}
        assert {"policy.versions-advance", "discovery.topology"} <= red(checks)


def judged(run: list[Fields], folder: Path, **config: Any) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    return judge_run(run, run_config(folder, **config))


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=tmp_path, control="plain-vllm", quiet=True)


@pytest.fixture
def both(tmp_path: Path, request_: Request) -> Callable[..., tuple[Outcome, list[Request]]]:
    def run(ours: Edit = lambda run: None, theirs: Edit = lambda run: None) -> tuple[Outcome, list[Request]]:
        asked: list[Request] = []

        def second(request: Request) -> Outcome:
            asked.append(request)
            assert request.run_dir is not None
            return judged(edited(control_run(), theirs), request.run_dir, serving="plain-vllm")

        first = judged(edited(first_run(), ours), tmp_path / "run", control="plain-vllm")
        return with_control("plain-vllm", request_, first, second), asked

    return run


Both = Callable[..., tuple[Outcome, list[Request]]]


def broken(run: list[Fields]) -> None:
    the(run, "generation", when="after")["status"] = 500


def ended_early(run: list[Fields]) -> None:
    run.append(failure(kind="refit").fields())


class TestOutcome:
    def test_the_control_is_the_same_request_against_the_engine_alone(self, both: Both, request_: Request) -> None:
        outcome, (asked,) = both()
        assert asked == replace(request_, control=None, serving="plain-vllm", run_dir=outcome.run_dir / "control")

    def test_both_have_to_pass(self, both: Both) -> None:
        outcome, _ = both()
        assert (outcome.exit_code, outcome.verdict.verdict) == (0, "pass")
        outcome, _ = both(theirs=broken)
        assert (outcome.exit_code, outcome.verdict.verdict) == (1, "fail")
        assert outcome.verdict.control is not None
        assert outcome.verdict.control.failed == ("generation.after-update",)
        assert outcome.verdict.failed() == [], "the run's own checks are its own"

    def test_a_control_that_ended_early_gives_its_status_and_its_reason(self, both: Both) -> None:
        outcome, _ = both(theirs=ended_early)
        assert (outcome.exit_code, outcome.verdict.verdict) == (40, "error")
        assert outcome.verdict.control is not None
        assert outcome.verdict.control.failure == "refit: refit 2 failed: the engine refused an update"

    def test_a_run_whose_checks_failed_is_compared_all_the_same(self, both: Both) -> None:
        outcome, asked = both(ours=broken)
        assert (outcome.exit_code, outcome.verdict.verdict) == (1, "fail")
        assert len(asked) == 1
        assert outcome.verdict.control is not None
        assert outcome.verdict.control.verdict == "pass"

    def test_a_run_that_ended_early_is_compared_with_nothing(
        self, both: Both, capsys: pytest.CaptureFixture[str]
    ) -> None:
        outcome, asked = both(ours=ended_early)
        assert (outcome.exit_code, asked, outcome.verdict.control) == (40, [], None)
        assert "no control" in capsys.readouterr().err

    def test_an_interrupt_of_the_control_is_one_of_the_command(self, both: Both) -> None:
        def interrupt(run: list[Fields]) -> None:
            run.append(failure(kind="interrupted", exit_code=130).fields())

        assert both(theirs=interrupt)[0].exit_code == 130
        assert both(ours=broken, theirs=interrupt)[0].exit_code == 130

    def test_a_control_that_cannot_be_begun_did_not_pass(self, tmp_path: Path, request_: Request) -> None:
        def refused(_request: Request) -> Outcome:
            raise UsageError("port 8002 for engine-0 is taken", hint="give another one")

        first = judged(first_run(), tmp_path / "run", control="plain-vllm")
        outcome = with_control("plain-vllm", request_, first, refused)
        assert (outcome.exit_code, outcome.verdict.verdict) == (2, "error")

    def test_what_is_written_is_what_is_told(self, both: Both) -> None:
        outcome, _ = both(theirs=broken)
        written = json.loads((outcome.run_dir / "verdict.json").read_text())
        assert written == outcome.verdict.document()
        assert written["control"]["run_dir"] == "control"
        assert written["control"]["not_judged"] == ["discovery.topology"]
        suite = ElementTree.parse(outcome.run_dir / "junit.xml").getroot()
        values = {one.get("name"): one.get("value") for one in suite.iter("property")}
        assert (values["verdict"], values["exit_code"]) == ("fail", "1")
        [case] = [one for one in suite.iter("testcase") if one.get("name") == "control"]
        failed = case.find("failure")
        assert failed is not None and "generation.after-update" in (failed.text or "")
        assert suite.get("failures") == "1", "a CI server that reads only this must see that the control failed"
        assert suite.get("tests") == str(len(written["checks"]) + 1)

    def test_a_control_that_passed_is_a_case_that_did(self, both: Both) -> None:
        suite = ElementTree.parse(both()[0].run_dir / "junit.xml").getroot()
        [case] = [one for one in suite.iter("testcase") if one.get("name") == "control"]
        assert (case.find("failure"), suite.get("failures")) == (None, "0")


class TestComparison:
    def test_rollouts_are_the_same_where_their_tokens_are(self, both: Both) -> None:
        outcome, _ = both()
        control = outcome.verdict.control
        assert control is not None
        assert [(pair.step, pair.same_rollouts, pair.rollouts) for pair in control.steps] == [
            (step, 3, 4) for step in (1, 2, 3, 4)
        ]

    def test_a_rollout_that_errored_is_the_same_as_no_other(self, both: Both) -> None:
        def errored(run: list[Fields]) -> None:
            the(run, "step", step=1)["answers"] = answers("", "b", "", "d")

        control = both(ours=errored, theirs=errored)[0].verdict.control
        assert control is not None
        assert (control.steps[0].same_rollouts, control.steps[0].rollouts) == (2, 4)

    def test_numbers_stand_side_by_side_and_what_is_none_is_none(self, both: Both) -> None:
        def unfinished(run: list[Fields]) -> None:
            run[:] = [event for event in run if event.get("step") != 4 and event.get("version") != 4]
            the(run, "step", step=2)["loss"] = "NaN"

        control = both(theirs=unfinished)[0].verdict.control
        assert control is not None
        one, two, *_, last = control.steps
        assert one.run is not None and two.run is not None
        assert one.run.reward == pytest.approx(0.45)
        assert one.run.mismatch_k3 == 2e-12
        assert two.control is not None and two.control.loss is None
        assert last.control is None
        assert [(pair.version, pair.run_s, pair.control_s) for pair in control.refits][:2] == [
            (0, pytest.approx(0.1), 0.05),
            (1, pytest.approx(0.11), pytest.approx(0.11)),
        ]

    def test_what_dynamo_costs_a_request_is_a_ratio_of_medians(self, both: Both) -> None:
        control = both()[0].verdict.control
        assert control is not None
        told = control.requests
        assert (told.count, told.frontend_s, told.same_engine_s, told.control_engine_s) == (3, 0.020, 0.010, 0.008)
        assert (told.ratio_to_control, told.ratio_to_same_engine) == (2.5, 2.0)
        assert (told.rollout_count, told.ratio_in_rollouts) == (16, pytest.approx(1.5))

    def test_without_measurements_there_are_no_ratios(self, both: Both) -> None:
        def unmeasured(run: list[Fields]) -> None:
            drop("request.times")(run)
            for event in run:
                event.pop("answers", None)

        control = both(ours=unmeasured)[0].verdict.control
        assert control is not None
        told = control.requests
        assert {told.ratio_to_control, told.ratio_to_same_engine, told.ratio_in_rollouts} == {None}
        assert list(request_lines(control)) == []

    def test_people_see_two_lines_a_version_and_the_ratios(self, both: Both) -> None:
        control = both(theirs=broken)[0].verdict.control
        assert control is not None
        table = comparison_table(control)
        rows = list(zip(*(column.cells for column in table.columns), strict=True))
        assert rows[0] == ("0", "dynamo", "-", "-", "-", "-", "-", "0.10 s", "-")
        assert rows[1] == ("", "plain-vllm", "-", "-", "-", "-", "-", "0.05 s", "")
        assert rows[2] == ("1", "dynamo", "0.450", "-0.0100", "2.0e-12", "512", "1.21 s", "0.11 s", "3/4")
        lines = "\n".join(request_lines(control))
        assert "20.0 ms through the frontend, 10.0 ms from its engine, 8.0 ms from the control's" in lines
        assert "Dynamo takes 2.00 times its own engine, asked in turns, and 2.50 times the control's" in lines
        word, facts = ending_line(control)
        assert word == "fail"
        assert "1 check failed: generation.after-update" in facts
        assert "3 of 4 rollouts of step 1 have the same tokens" in facts

    @pytest.mark.parametrize("quiet", [False, True])
    def test_the_whole_fits_a_terminal_and_a_quiet_run_says_how_it_ended(self, quiet: bool, both: Both) -> None:
        control = both()[0].verdict.control
        assert control is not None
        stream = StringIO()
        with Console(stream, plain=True, quiet=quiet) as console:
            console.comparison(control)
        lines = stream.getvalue().splitlines()
        assert lines[-1] == "PASS  the control, plain-vllm, 3 of 4 rollouts of step 1 have the same tokens"
        rows = [line for line in lines if "plain-vllm" in line and "PASS" not in line]
        assert len(rows) == (0 if quiet else 5)
        assert all(len(line) <= 80 for line in rows), rows


class TestRequest:
    @pytest.mark.parametrize(
        "other", [["--trainer", "python3 x.py"], ["--sabotage", "unknown-name"], ["--keep-up"], ["--lora"]]
    )
    def test_what_cannot_be_compared_is_refused(self, other: list[str]) -> None:
        with pytest.raises(UsageError, match="exclude each other") as caught:
            Request.from_args(build_parser().parse_args(["smoke", "--control", "plain-vllm", *other]))
        assert other[0] in caught.value.what
        assert caught.value.found == f"--control plain-vllm and {' '.join(other)}"
        assert caught.value.hint == f"leave out --control or {other[0]}"

    def test_several_engines_have_no_control(self) -> None:
        with pytest.raises(UsageError, match="compares one engine"):
            Request.from_args(build_parser().parse_args(["smoke", "--control", "plain-vllm", "--engines", "2"]))

    def test_it_reaches_the_request(self) -> None:
        asked = Request.from_args(build_parser().parse_args(["smoke", "--control", "plain-vllm"]))
        assert (asked.control, asked.serving) == ("plain-vllm", "dynamo")


class TestStack:
    @pytest.fixture
    def plain(self, make_bench: Callable[..., Bench]) -> Bench:
        bench = make_bench(serving="plain-vllm")
        assert bench.stack.context.config.serving == "plain-vllm"
        return bench

    def test_only_the_engine_is_started(self, plain: Bench) -> None:
        topology = plain.stack.start()
        assert plain.started() == ["engine-0"]
        [worker] = topology.workers
        assert (worker.admin_url, worker.system_url) == (plain.context.url("engine-0"), "")
        assert (worker.world_size, worker.transfer_offset) == (1, 1)
        assert plain.context.serving_url == worker.admin_url
        assert plain.stack.describe().urls == {"engine-0": worker.admin_url}
        assert leftovers(plain.stack.stop()) == CLEAN

    def test_nobody_is_asked_for_a_topology_that_cannot_change(self, plain: Bench) -> None:
        plain.stack.start()
        plain.stack.require_same_topology()
        assert plain.stack.current_topology() is plain.stack.topology
        plain.stack.launch(trainer_running(plain, "import time; time.sleep(60)"))
        assert {one.service for one in plain.stack.identities("start").processes} == {"engine-0"}
        assert TRAINER in plain.stack.processes

    def test_with_dynamo_the_frontend_serves(self, bench: Bench) -> None:
        assert bench.context.serving_url == bench.context.url("frontend")
