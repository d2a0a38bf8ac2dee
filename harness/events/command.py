"""Events of a run whose trainer is a command of the caller's: what was seen of the stack meanwhile, and its end."""

from __future__ import annotations

from typing import Literal

from harness.events.base import Data, Flag, HarnessEvent, ObserverEvent, Whole
from harness.events.observation import EngineObservation


class EngineLabels(Data):
    """What one engine and its sidecar said of themselves at one moment. None: they gave no answer."""

    admin_url: str
    engine_label: str | None
    sidecar_label: str | None
    paused: Flag | None


class LabelsSeen(ObserverEvent):
    """Something in the labels or in being paused has changed since the last such event."""

    kind: Literal["labels"] = "labels"
    engines: tuple[EngineLabels, ...]


class Surveyed(ObserverEvent):
    """The stack while nobody works on it: before the command is started, and after it has ended."""

    kind: Literal["surveyed"] = "surveyed"
    when: Literal["before", "after"]
    engines: tuple[EngineObservation, ...]


class CommandEnded(HarnessEvent):
    """The command's exit status, negative for a signal; None: it still ran when its time was over."""

    kind: Literal["command.ended"] = "command.ended"
    returncode: Whole | None
    seconds: float
    limit_s: float
