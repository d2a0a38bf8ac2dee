"""Events survive the way to disk and back, and whatever is not exactly an event is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import get_args

import pytest

from harness import events
from harness.errors import RefitError
from tests.harness.command_run import passing_command
from tests.harness.event_factory import failure, passing_run, run_config, the, training_step

WITH_ADAPTER = run_config(lora=True)


@pytest.mark.parametrize("fields", [*passing_run(WITH_ADAPTER), *passing_command()], ids=lambda fields: fields["kind"])
def test_an_event_survives_the_way_to_disk_and_back(fields: dict[str, object]) -> None:
    assert events.parse(events.parse_fields(fields).line()).fields() == fields


def test_the_example_run_and_its_failures_cover_every_kind() -> None:
    known = {model.model_fields["kind"].default for model in get_args(events.Event)}
    shown = {fields["kind"] for fields in [*passing_run(WITH_ADAPTER), *passing_command()]}
    assert known - shown == {"failure", "trainer.error", "note", "request.times", "gpu.memory"}


def test_numbers_that_are_none_stay_what_they_are_in_plain_json() -> None:
    step = training_step(1).model_copy(update={"loss": math.nan, "grad_norm": -math.inf})
    strict = json.loads(step.line(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    read = events.parse_fields(strict)
    assert isinstance(read, events.Step)
    assert math.isnan(read.loss)
    assert read.grad_norm == -math.inf


def test_the_nan_literals_of_another_writer_are_understood() -> None:
    line = json.dumps(training_step(1).fields() | {"loss": math.nan})
    read = events.parse(line)
    assert isinstance(read, events.Step)
    assert math.isnan(read.loss)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"los": 0.1}, "los: Extra inputs are not permitted"),
        ({"step": "1"}, "step: Input should be a valid integer"),
        ({"step": 1.0}, "step: Input should be a valid integer"),
        ({"step": True}, "step: Input should be a valid integer"),
        ({"step": 0}, "step: Input should be greater than or equal to 1"),
        ({"loss": None}, "loss: Input should be a valid number"),
        ({"kind": "stpe"}, "stpe"),
    ],
)
def test_a_field_that_does_not_fit_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(events.EventError, match=named):
        events.parse_fields(training_step(1).fields() | change)


@pytest.mark.parametrize("fields", [*passing_run(WITH_ADAPTER), *passing_command()], ids=lambda fields: fields["kind"])
def test_nobody_reports_an_event_of_another(fields: dict[str, object]) -> None:
    for source in {"harness", "observer", "trainer"} - {fields["source"]}:
        with pytest.raises(events.EventError, match="source: Input should be"):
            events.parse_fields(fields | {"source": source})


def test_a_trainer_reports_what_only_it_can_know() -> None:
    told = {fields["kind"] for fields in passing_run(WITH_ADAPTER) if fields["source"] == "trainer"}
    assert told | {"trainer.error"} == events.TRAINER_KINDS
    assert events.TRAINER_KINDS.isdisjoint({"observed", "generation", "failure", "teardown", "topology", "pins"})


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '{"kind": null}', "{}"])
def test_what_is_no_event_at_all_is_refused(line: str) -> None:
    with pytest.raises(events.EventError):
        events.parse(line)


def test_the_label_of_a_version_is_text_and_never_a_number() -> None:
    fields = the(passing_run(), "observed", version=1)
    fields["engines"][0]["engine_label"] = 1
    with pytest.raises(events.EventError, match="engine_label"):
        events.parse_fields(fields)


def test_an_event_that_nobody_recorded_yet_has_no_time() -> None:
    assert "t" not in events.Note(text="hello").fields()
    assert events.Note(text="hello", t=2.5).fields()["t"] == 2.5


def test_an_error_of_the_run_becomes_its_failure_event() -> None:
    error = RefitError("it broke", expected="a", found="b", where="here", hint="try", log=Path("logs/engine-0.log"))
    recorded = events.parse(events.Failure.of(error).line())
    assert recorded == failure(
        what="it broke", expected="a", found="b", where="here", hint="try", log=str(Path("logs/engine-0.log"))
    )


def test_the_configuration_is_kept_whole() -> None:
    config = run_config()
    (first, *_) = passing_run(config)
    assert first["config"] == config.model_dump(mode="json")
