"""A run and its control side by side, step by step and version by version: the numbers, not a judgement.

The control is the same training against the engine alone. What is the same in both says that they are comparable; what
is not says what Dynamo costs, or that one of the two is not what it should be. Reads events, decides nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness import events
from harness.config import ControlKind
from harness.evidence import Timeline

Via = Literal["frontend", "engine"]


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StepNumbers(_Closed):
    """One optimizer step of one run. None is a number that was none (NaN or infinite)."""

    reward: float | None
    loss: float | None
    grad_norm: float | None
    mismatch_mean_abs: float | None
    mismatch_max_abs: float | None
    mismatch_k3: float | None
    tokens: int
    rollout_s: float | None

    @classmethod
    def of(cls, step: events.Step) -> StepNumbers:
        return cls(
            reward=_finite(step.rewards.mean),
            loss=_finite(step.loss),
            grad_norm=_finite(step.grad_norm),
            mismatch_mean_abs=_finite(step.mismatch.mean_abs),
            mismatch_max_abs=_finite(step.mismatch.max_abs),
            mismatch_k3=_finite(step.mismatch.k3),
            tokens=step.tokens,
            rollout_s=_finite(step.seconds.rollout),
        )


class StepPair(_Closed):
    """The same step of both runs; None for one that a run did not take. `same_rollouts` of `rollouts` have the same
    tokens."""

    step: int
    run: StepNumbers | None
    control: StepNumbers | None
    rollouts: int
    same_rollouts: int


class RefitPair(_Closed):
    """Seconds from pause to resume of the same version in both runs."""

    version: int
    run_s: float | None
    control_s: float | None


class Requests(_Closed):
    """Median seconds of a request, and how many there were.

    One at a time: equal requests for one token, each over a connection of its own, when nothing else was to do: through
    the frontend, in turns to the same engine, and to the engine of the control. In rollouts: all requests of all steps,
    as the trainer sends them side by side.
    """

    count: int
    frontend_s: float | None
    same_engine_s: float | None
    control_engine_s: float | None
    rollout_count: int
    rollout_s: float | None
    control_rollout_s: float | None
    ratio_to_control: float | None
    ratio_to_same_engine: float | None
    ratio_in_rollouts: float | None


class Control(_Closed):
    """The control of a run, and the comparison with it. `run_dir` is relative to the run's folder.

    `failed` are its checks that did, `failure` is what ended it early, `not_judged` is out of its scope.
    """

    kind: ControlKind
    verdict: Literal["pass", "fail", "error"]
    exit_code: int
    run_dir: str
    failed: tuple[str, ...]
    failure: str | None
    not_judged: tuple[str, ...]
    steps: tuple[StepPair, ...]
    refits: tuple[RefitPair, ...]
    requests: Requests


def steps(run: Timeline, control: Timeline) -> tuple[StepPair, ...]:
    """Every step that either took."""
    ours, theirs = ({step.step: step for step in timeline.of(events.Step)} for timeline in (run, control))
    pairs = []
    for number in sorted({*ours, *theirs}):
        one, other = ours.get(number), theirs.get(number)
        both = [] if one is None or other is None else list(zip(one.answers, other.answers, strict=False))
        pairs.append(
            StepPair(
                step=number,
                run=None if one is None else StepNumbers.of(one),
                control=None if other is None else StepNumbers.of(other),
                rollouts=max(len(step.answers) if step else 0 for step in (one, other)),
                same_rollouts=sum(
                    a is not None and b is not None and a.tokens_sha256 == b.tokens_sha256 for a, b in both
                ),
            )
        )
    return tuple(pairs)


def refits(run: Timeline, control: Timeline) -> tuple[RefitPair, ...]:
    ours, theirs = ({item.version: item.seconds.total for item in t.of(events.Refit)} for t in (run, control))
    return tuple(
        RefitPair(version=version, run_s=_finite(ours.get(version)), control_s=_finite(theirs.get(version)))
        for version in sorted({*ours, *theirs})
    )


def requests(run: Timeline, control: Timeline) -> Requests:
    frontend, same, alone = _timed(run, "frontend"), _timed(run, "engine"), _timed(control, "engine")
    rollouts, alone_rollouts = _rollouts(run), _rollouts(control)
    return Requests(
        count=min(len(frontend), len(alone)),
        frontend_s=_median(frontend),
        same_engine_s=_median(same),
        control_engine_s=_median(alone),
        rollout_count=min(len(rollouts), len(alone_rollouts)),
        rollout_s=_median(rollouts),
        control_rollout_s=_median(alone_rollouts),
        ratio_to_control=_ratio(frontend, alone),
        ratio_to_same_engine=_ratio(frontend, same),
        ratio_in_rollouts=_ratio(rollouts, alone_rollouts),
    )


def _timed(run: Timeline, via: Via) -> list[float]:
    return [seconds for event in run.of(events.RequestTimes) if event.via == via for seconds in event.seconds]


def _rollouts(run: Timeline) -> list[float]:
    return [answer.seconds for step in run.of(events.Step) for answer in step.answers if answer is not None]


def _median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds and all(map(math.isfinite, seconds)) else None


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Of the medians; None without both."""
    one, other = _median(ours), _median(theirs)
    return one / other if one is not None and other else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
