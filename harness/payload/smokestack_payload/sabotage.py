"""Faults on purpose: the one place in the payload where a run's trainer can be made to do wrong.

Only `smoke --sabotage`, `selftest` and tests set `sabotage` in the trainer's configuration. Each name breaks exactly
one thing; everything else is the real trainer. Those of a refit strike at the last version, so that no later step
covers them up. The tensors and rollouts that are wrong are made in `spoiled`, what engines are told wrong in `misled`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smokestack_payload.errors import ProtocolError
from smokestack_payload.refit.admin import EngineFleet
from smokestack_payload.refit.protocols import protocol_of
from smokestack_payload.rollout import Sampler
from smokestack_payload.settings import Plan, TrainerSettings

if TYPE_CHECKING:
    from smokestack_payload.step import Stepper

UNKNOWN_NAME = "unknown-name"
REFUSED_UPDATE = "refused-update"
LABEL_WITHOUT_WEIGHTS = "label-without-weights"
WEIGHTS_WITHOUT_LABEL = "weights-without-label"
WRONG_RANK_OFFSET = "wrong-rank-offset"
WORLD_TOO_LARGE = "world-too-large"
UNREACHABLE_MASTER = "unreachable-master"
ONE_CORRUPTED_TENSOR = "one-corrupted-tensor"
SWAPPED_TENSORS = "swapped-tensors"
HALF_THE_NAMES = "half-the-names"
SUPPRESSED_UPDATE = "suppressed-update"
ERRORED_ROLLOUTS = "errored-rollouts"
MISCOUNTED_STEPS = "miscounted-steps"
MISLED_ENGINE = "misled-second-engine"
REFUSED_BY_ONE = "refused-by-second-engine"
PAST_THE_FRONTEND = "past-the-frontend"
STALE_ROLLOUTS = "stale-rollouts"
MISNAMED_SAMPLES = "misnamed-samples"
STALE_PREFIX_CACHE = "stale-prefix-cache"
LEFT_PAUSED = "left-paused"
HALF_A_CHECKPOINT = "half-a-checkpoint"
DRAINED_GENERATIONS = "drained-generations"
KEPT_GENERATIONS = "kept-generations"
UNABORTED_GENERATIONS = "unaborted-generations"

NAMES = (
    UNKNOWN_NAME,
    REFUSED_UPDATE,
    LABEL_WITHOUT_WEIGHTS,
    WEIGHTS_WITHOUT_LABEL,
    WRONG_RANK_OFFSET,
    WORLD_TOO_LARGE,
    UNREACHABLE_MASTER,
    ONE_CORRUPTED_TENSOR,
    SWAPPED_TENSORS,
    HALF_THE_NAMES,
    SUPPRESSED_UPDATE,
    ERRORED_ROLLOUTS,
    MISCOUNTED_STEPS,
    MISLED_ENGINE,
    REFUSED_BY_ONE,
    PAST_THE_FRONTEND,
    STALE_ROLLOUTS,
    MISNAMED_SAMPLES,
    STALE_PREFIX_CACHE,
    LEFT_PAUSED,
    HALF_A_CHECKPOINT,
    DRAINED_GENERATIONS,
    KEPT_GENERATIONS,
    UNABORTED_GENERATIONS,
)


def require_known(name: str | None) -> None:
    """Raises ProtocolError for a name that breaks nothing: such a run would pass for the wrong reason."""
    if name is not None and name not in NAMES:
        raise ProtocolError("no such sabotage", expected=", ".join(NAMES), found=name, where="sabotage")


def spoiled_plan(plan: Plan, settings: TrainerSettings) -> Plan:
    """The plan with its sabotage, or as it is."""
    if settings.sabotage == WRONG_RANK_OFFSET:
        wrong = (replace(engine, rank_offset=engine.rank_offset + 1) for engine in plan.engines)
        return replace(plan, engines=tuple(wrong))
    if settings.sabotage == WORLD_TOO_LARGE:
        return replace(plan, world_size=plan.world_size + 1)
    return plan


def sampling_plan(plan: Plan, settings: TrainerSettings) -> Plan:
    """Where rollouts are asked for: at the frontend, unless they are to pass it by."""
    past = settings.sabotage == PAST_THE_FRONTEND
    return replace(plan, frontend_url=plan.engines[0].admin_url) if past else plan


def spoiled_settings(settings: TrainerSettings) -> TrainerSettings:
    """What a step is taken with: with a suppressed update, nothing is learned from any gradient."""
    if settings.sabotage != SUPPRESSED_UPDATE:
        return settings
    return replace(settings, grpo=replace(settings.grpo, learning_rate=0.0))


def told_steps(settings: TrainerSettings) -> int:
    """How many steps the trainer says that it took."""
    return settings.steps - (settings.sabotage == MISCOUNTED_STEPS)


def told_version(step: int, settings: TrainerSettings) -> int:
    """From which version the trainer says that it sampled `step`: of the last one, one that is too old."""
    return step - 1 - (settings.sabotage == MISNAMED_SAMPLES and step == settings.steps)


def spoiled_source(source: Any, settings: TrainerSettings) -> Any:
    """The weights that are announced and sent, with their sabotage, or as they are."""
    if settings.sabotage != HALF_THE_NAMES:
        return source
    from smokestack_payload.spoiled import HalfSource

    return HalfSource(source)


def sampler_of(settings: TrainerSettings) -> type[Sampler]:
    """What asks for rollouts: the real one, unless it is to err."""
    if settings.sabotage != ERRORED_ROLLOUTS:
        return Sampler
    from smokestack_payload.spoiled import ErringSampler

    return ErringSampler


def stepper_of(settings: TrainerSettings) -> type[Stepper]:
    """What takes the steps: the real one, unless it is to use old rollouts."""
    if settings.sabotage != STALE_ROLLOUTS:
        from smokestack_payload.step import Stepper

        return Stepper
    from smokestack_payload.spoiled import StaleStepper

    return StaleStepper


def fleet_of(plan: Plan, settings: TrainerSettings) -> EngineFleet:
    """The client of the plan's engines: the real one, unless there is a sabotage."""
    if settings.sabotage is None:
        return EngineFleet(plan.engines, plan.carried, protocol_of(settings))
    from smokestack_payload.misled import MisledFleet

    return MisledFleet(plan, settings)


def spoiled_connector(
    connect: Callable[[EngineFleet, Any], Any], settings: TrainerSettings
) -> Callable[[EngineFleet, Any], Any]:
    """The connector with its sabotage, or as it is."""
    last = str(settings.steps)
    if settings.sabotage == LABEL_WITHOUT_WEIGHTS:
        from smokestack_payload.misled import Idle

        return lambda fleet, source: Idle(connect(fleet, source), fleet, last)
    if settings.sabotage == HALF_A_CHECKPOINT:
        from smokestack_payload.spoiled import HalfWritten

        return lambda fleet, source: HalfWritten(connect(fleet, source), last)
    if settings.sabotage in {ONE_CORRUPTED_TENSOR, SWAPPED_TENSORS}:
        from smokestack_payload.spoiled import SpoiledSource, one_corrupted, swapped

        spoil = one_corrupted if settings.sabotage == ONE_CORRUPTED_TENSOR else swapped
        return lambda fleet, source: connect(fleet, SpoiledSource(source, spoil, lambda: fleet.version == last))
    return connect
