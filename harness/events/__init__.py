"""The kinds of events in `events.jsonl`: the vocabulary between those who act, those who judge and those who report.

One frozen model per kind; unknown fields are an error, so that a typing slip cannot pass for missing evidence. Numbers
may be NaN or infinite, since a run must be able to record that it went wrong; on disk they are strings ("NaN"), which
keeps every line plain JSON. Imports nothing of the project but its errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from harness.events.base import BaseEvent, Source, TrainerEvent
from harness.events.command import CommandEnded, EngineLabels, LabelsSeen, Surveyed
from harness.events.inflight import PAUSES, InFlight, LongGeneration, PauseMode
from harness.events.observation import (
    BEFORE_TRANSFER,
    AdapterObservation,
    AdapterObserved,
    CacheAnswer,
    CacheProbe,
    Cut,
    Destroyed,
    EngineObservation,
    FinishedRequests,
    Generation,
    HeldParameter,
    Observed,
    PerturbationObserved,
    Probe,
    RequestTimes,
    Span,
    Stage,
)
from harness.events.run import Failure, Note, Phase, PhaseName, RunFailure, RunStarted, Survivor, Teardown
from harness.events.stack import (
    BinaryHashes,
    GpuMemory,
    GpuProcess,
    GpuUse,
    Listening,
    ListeningSocket,
    Pins,
    Processes,
    ProcessRecord,
    ServiceExited,
    ServiceReady,
    ServiceStarted,
    Topology,
    Worker,
)
from harness.events.trainer import (
    Adapter,
    AnnouncedTensor,
    Mismatch,
    Perturbation,
    ReferenceDigest,
    ReferenceProbe,
    Refit,
    RefitSeconds,
    RewardGroup,
    Rewards,
    RolloutAnswer,
    Step,
    StepSeconds,
    TrainerDone,
    TrainerError,
    TrainerFault,
    TrainerProbe,
    TrainerReady,
    TrainerWeights,
    TransferInitialised,
    VersionFit,
    Warmup,
)

__all__ = [
    "BEFORE_TRANSFER",
    "PAUSES",
    "TRAINER_KINDS",
    "Adapter",
    "AdapterObservation",
    "AdapterObserved",
    "AnnouncedTensor",
    "BaseEvent",
    "BinaryHashes",
    "CacheAnswer",
    "CacheProbe",
    "CommandEnded",
    "Cut",
    "Destroyed",
    "EngineLabels",
    "EngineObservation",
    "Event",
    "EventError",
    "Failure",
    "FinishedRequests",
    "Generation",
    "GpuMemory",
    "GpuProcess",
    "GpuUse",
    "HeldParameter",
    "InFlight",
    "LabelsSeen",
    "Listening",
    "ListeningSocket",
    "LongGeneration",
    "Mismatch",
    "Note",
    "Observed",
    "PauseMode",
    "Perturbation",
    "PerturbationObserved",
    "Phase",
    "PhaseName",
    "Pins",
    "Probe",
    "ProcessRecord",
    "Processes",
    "ReferenceDigest",
    "ReferenceProbe",
    "Refit",
    "RefitSeconds",
    "RequestTimes",
    "RewardGroup",
    "Rewards",
    "RolloutAnswer",
    "RunFailure",
    "RunStarted",
    "ServiceExited",
    "ServiceReady",
    "ServiceStarted",
    "Source",
    "Span",
    "Stage",
    "Step",
    "StepSeconds",
    "Surveyed",
    "Survivor",
    "Teardown",
    "Topology",
    "TrainerDone",
    "TrainerError",
    "TrainerFault",
    "TrainerProbe",
    "TrainerReady",
    "TrainerWeights",
    "TransferInitialised",
    "VersionFit",
    "Warmup",
    "Worker",
    "parse",
    "parse_fields",
]


class EventError(ValueError):
    """A line or an object is not an event of a known kind."""


Event = (
    RunStarted
    | Phase
    | Note
    | ServiceStarted
    | ServiceReady
    | ServiceExited
    | Pins
    | Topology
    | Observed
    | Destroyed
    | PerturbationObserved
    | AdapterObserved
    | InFlight
    | LabelsSeen
    | Surveyed
    | CommandEnded
    | Generation
    | RequestTimes
    | Processes
    | Listening
    | GpuMemory
    | Teardown
    | Failure
    | TrainerReady
    | TransferInitialised
    | Refit
    | TrainerWeights
    | TrainerProbe
    | Perturbation
    | Adapter
    | Step
    | TrainerDone
    | TrainerError
)

TRAINER_KINDS: frozenset[str] = frozenset(
    model.model_fields["kind"].default for model in get_args(Event) if issubclass(model, TrainerEvent)
)
"""What a trainer may report. All other kinds are the harness's own word."""

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def parse(line: str | bytes) -> Event:
    """One line of `events.jsonl` (or of the trainer's pipe, NaN literals included). Raises `EventError`."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise EventError(f"not JSON: {error}") from error
    return parse_fields(fields)


def parse_fields(fields: Mapping[str, Any]) -> Event:
    """The same from a decoded object. Raises `EventError` naming each wrong field."""
    try:
        return _ADAPTER.validate_python(fields)
    except ValidationError as error:
        raise EventError("; ".join(_reasons(error))) from error


def _reasons(error: ValidationError) -> list[str]:
    """One text for each fault. A field's path begins with the event's kind, which the caller knows."""
    return [f"{'.'.join(map(str, fault['loc'][1:])) or 'event'}: {fault['msg']}" for fault in error.errors()]
