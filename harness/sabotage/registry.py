"""Every sabotage, by name. Imports nothing of the harness but their declarations, so that anything may read it."""

from __future__ import annotations

from collections.abc import Mapping

from harness.sabotage.by_harness import AS_THE_COMMAND, ON_THE_STACK
from harness.sabotage.by_trainer import FAILING_REFITS, WHILE_TRAINING
from harness.sabotage.declaration import Sabotage

SABOTAGES: tuple[Sabotage, ...] = (*WHILE_TRAINING, *ON_THE_STACK, *FAILING_REFITS, *AS_THE_COMMAND)

HARNESS_SABOTAGES: Mapping[str, str] = {one.name: one.does for one in SABOTAGES if one.where == "harness"}
"""What the harness does wrong, by name."""

TRAINER_SABOTAGES: Mapping[str, str] = {one.name: one.does for one in SABOTAGES if one.where == "trainer"}
"""What the trainer does wrong, by name."""


def for_trainer(name: str | None) -> str | None:
    """What the trainer is told: nothing of a sabotage that is not its own to do."""
    return name if name in TRAINER_SABOTAGES else None


UNSABOTAGED: Mapping[str, str] = {
    "generation.lora-adapter": "no stack at hand passes it, for a fault to turn it red: `smoke -- --lora` is red "
    "by the released engine's own fault; its tests edit the events of a run that passes",
    "teardown.gpu-memory": "there was no run on GPUs to sabotage: its tests edit the events of one",
}
"""Checks that no sabotage turns red, with the reason why none can. `docs/sabotage.md` lists them."""


def named(name: str | None) -> Sabotage | None:
    """The sabotage of that name; None for None. Raises KeyError for a name that is none."""
    return None if name is None else {one.name: one for one in SABOTAGES}[name]
