"""Faults on purpose: what `--sabotage` can name. Each is made in one place; a run that has one must not pass.

The trainer's are made by `smokestack_payload.sabotage`, from the trainer's configuration. Imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

TRAINER_SABOTAGES: Mapping[str, str] = {
    "unknown-name": "the last refit's update names a parameter that the model does not have",
    "refused-update": "the engines refuse the last refit's update while the trainer's broadcast has begun",
    "label-without-weights": "the last refit sets its version and moves nothing",
    "weights-without-label": "the last refit moves the weights and sets no version",
    "wrong-rank-offset": "the engines are told ranks one too high",
    "world-too-large": "trainer and engines wait for one rank more than there are",
    "unreachable-master": "the engines are told an address for the rendezvous that nobody has",
}
"""What the trainer does wrong, by name."""
