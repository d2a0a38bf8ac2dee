"""Events about generations that are in flight while a refit pauses the engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from harness.events.base import Count, Data, ObserverEvent, Whole
from harness.events.observation import Span, Stage

PauseMode = Literal["abort", "wait", "keep"]

PAUSES: Mapping[Stage, PauseMode] = {"repeated": "abort", "perturbed": "wait", "restored": "keep"}
"""How each of these refits pauses the engines, with long generations in flight."""


class LongGeneration(Data):
    """A long generation that was asked for before a refit. Seconds count from the order to hold it.

    `seen` is how many pieces of it had come when it stood still. `spans` is None where the server tells none, as the
    frontend does. `status` is 0 without an answer.
    """

    via: Literal["engine", "frontend"]
    url: str
    seen: Count
    asked: Count
    tokens: Count
    status: Whole
    error: str
    finish_reason: str | None
    spans: tuple[Span, ...] | None
    ended_s: float


class InFlight(ObserverEvent):
    """What became of the generations around a refit.

    They were held before it, which was done at `held_s`; then the trainer paused the engines by `pause`. It said at
    `refitted_s` that the refit was done, which it had been for a while: it computes digests before it says so. `holds`
    counts the attempts: those before the last caught nothing.
    """

    kind: Literal["generations.in-flight"] = "generations.in-flight"
    stage: Stage
    pause: PauseMode
    holds: Count
    held_s: float
    refitted_s: float
    generations: tuple[LongGeneration, ...]
