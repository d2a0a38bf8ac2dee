"""What engines are told wrong on purpose, for `sabotage`: the calls of a refit, its names, its types, its labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smokestack_payload.refit.admin import ABORT, KEEP, WAIT, EngineFleet
from smokestack_payload.refit.protocols import Call, protocol_of
from smokestack_payload.sabotage import (
    DRAINED_GENERATIONS,
    KEPT_GENERATIONS,
    LEFT_PAUSED,
    MISLED_ENGINE,
    REFUSED_BY_ONE,
    REFUSED_UPDATE,
    STALE_PREFIX_CACHE,
    UNABORTED_GENERATIONS,
    UNKNOWN_NAME,
    UNREACHABLE_MASTER,
    WEIGHTS_WITHOUT_LABEL,
)
from smokestack_payload.settings import Plan, TrainerSettings

LAST_ROUNDS = 2
"""How often a run refits under its last version's own label: after the last step, and back from perturbed weights."""

PAUSED_INSTEAD: Mapping[tuple[str | None, str], str] = {
    (DRAINED_GENERATIONS, KEEP): WAIT,
    (KEPT_GENERATIONS, WAIT): KEEP,
    (UNABORTED_GENERATIONS, ABORT): KEEP,
}

NOBODYS_NAME = "model.layers.0.nobody.weight"
NO_TYPE = "float31"
NOBODYS_ADDRESS = "192.0.2.1"
"""Of the block that is kept for documentation (RFC 5737): routers have no way to it."""


class MisledFleet(EngineFleet):
    """Tells the engines one thing wrong."""

    def __init__(self, plan: Plan, settings: TrainerSettings) -> None:
        self._sabotage = settings.sabotage
        self._last = str(settings.steps)
        self._last_rounds = 0
        self._misled = plan.engines[-1]
        super().__init__(plan.engines, plan.carried, protocol_of(settings))

    def pause(self, mode: str = WAIT) -> None:
        """vLLM drops its prefix cache with a pause, unless it is asked not to."""
        if self.version == self._last and self._sabotage == STALE_PREFIX_CACHE:
            self._each("pause", lambda _: [Call("/pause", params={"mode": mode, "clear_cache": "false"})])
            return
        super().pause(PAUSED_INSTEAD.get((self._sabotage, mode), mode))

    def reset_prefix_cache(self) -> None:
        if self.version == self._last and self._sabotage == STALE_PREFIX_CACHE:
            self.seconds["reset"] = 0.0
            return
        super().reset_prefix_cache()

    def begin(self, version: str | None, limit_s: float) -> None:
        super().begin(version, limit_s)
        self._last_rounds += version == self._last

    def resume(self) -> None:
        """The last version's label is given twice, the second time after the perturbation: then nothing resumes."""
        if self._sabotage == LEFT_PAUSED and self._last_rounds == LAST_ROUNDS:
            return
        super().resume()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        if self._sabotage == UNREACHABLE_MASTER:
            init_info = {**init_info, "master_address": NOBODYS_ADDRESS}
        super().init_weight_transfer_engine(init_info)

    def update_weights(self, update_info: Any) -> None:
        """The trainer's collective has begun or is about to, as with a trainer that does not know better."""
        if self.version == self._last and self._sabotage == UNKNOWN_NAME:
            names = list(update_info["names"])
            names[len(names) // 2] = NOBODYS_NAME
            update_info = {**update_info, "names": names}
        if self.version == self._last and self._sabotage == REFUSED_UPDATE:
            update_info = {**update_info, "dtype_names": [NO_TYPE, *update_info["dtype_names"][1:]]}
        if self.version == self._last and self._sabotage in {MISLED_ENGINE, REFUSED_BY_ONE}:
            changes = {"names": exchanged(update_info)}
            if self._sabotage == REFUSED_BY_ONE:
                changes = {"dtype_names": [NO_TYPE, *update_info["dtype_names"][1:]]}
            wrong = {**update_info, **changes}
            misled, update = self._misled, self._protocol.update
            self._each("update", lambda engine: update(engine, wrong if engine == misled else update_info))
            return
        super().update_weights(update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        if self.version == self._last and self._sabotage == WEIGHTS_WITHOUT_LABEL:
            self.finish(None)
            return
        super().finish_weight_update(weight_version)


class Idle:
    """A transfer engine that announces no tensor in the last version's update, and sends none."""

    def __init__(self, engine: Any, fleet: EngineFleet, last: str) -> None:
        self._engine = engine
        self._fleet = fleet
        self._last = last

    def send_weights(self) -> None:
        if self._fleet.version != self._last:
            self._engine.send_weights()
            return
        self._fleet.start_weight_update()
        self._fleet.update_weights(self._fleet.nothing)
        self._fleet.finish_weight_update()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def exchanged(update_info: Any) -> list[str]:
    """The names of an update, the first two of equal type and shape with more than one dimension exchanged."""
    kinds = [
        (tuple(shape), dtype) for shape, dtype in zip(update_info["shapes"], update_info["dtype_names"], strict=True)
    ]
    first, second = next(
        (one, other)
        for one, kind in enumerate(kinds)
        for other in range(one + 1, len(kinds))
        if len(kind[0]) > 1 and kinds[other] == kind
    )
    names = list(update_info["names"])
    names[first], names[second] = names[second], names[first]
    return names
