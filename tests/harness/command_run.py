"""The events of a run whose trainer is a command, and the tests' edits of it."""

from __future__ import annotations

from typing import Any

from harness import events
from harness.config import RunConfig
from harness.program import Program
from tests.harness.event_factory import Fields, engines, listening, passing_run, processes, run_config

PROGRAM = Program.parse("python train.py --fast", "/home/somebody")  # type: ignore[arg-type]
TAKEN_OVER = {"run.started", "pins", "service.started", "service.ready", "topology", "service.exited", "teardown"}


def command_config(**changes: Any) -> RunConfig:
    return run_config(trainer=PROGRAM, **changes)


def passing_command(config: RunConfig | None = None) -> list[Fields]:
    """Every event of a run in which a command did its work."""
    config = config or command_config()
    ours = passing_run(config)
    place = next(index for index, event in enumerate(ours) if event["kind"] == "service.exited")
    before = [event for event in ours[:place] if event["kind"] in TAKEN_OVER or event.get("phase") == "install"]
    listed: list[events.BaseEvent] = [
        events.Generation(
            when="before", status=200, text="q", completion_tokens=1, finish_reason="length", seconds=0.34
        ),
        events.Surveyed(when="before", engines=engines("default", 0, config)),
        events.Phase(phase="ready", seconds=31.2),
        processes("start", config),
        listening("start", config),
        events.LabelsSeen(engines=labels("default", config)),
        *(events.LabelsSeen(engines=labels(str(version), config)) for version in range(3)),
        events.LabelsSeen(engines=labels("2", config, paused=True)),
        events.LabelsSeen(engines=labels("3", config)),
        events.CommandEnded(returncode=0, seconds=20.0, limit_s=3600.0),
        events.Surveyed(when="after", engines=engines("3", 3, config)),
        events.Generation(when="after", status=200, text="7", completion_tokens=1, finish_reason="stop", seconds=0.21),
        processes("end", config),
        listening("end", config),
        events.Phase(phase="train", seconds=21.7),
    ]
    run = [*before, *(event.fields() for event in listed), *ours[place:]]
    return [{**event, "t": 1.5 * index} for index, event in enumerate(run)]


def labels(label: str, config: RunConfig, *, paused: bool = False) -> tuple[events.EngineLabels, ...]:
    return tuple(
        events.EngineLabels(admin_url=engine.admin_url, engine_label=label, sidecar_label=label, paused=paused)
        for engine in engines(label, 0, config)
    )
