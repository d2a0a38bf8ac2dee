"""Which version a rollout fits: the engine's log-probabilities against those under neighbouring versions' weights.

The frontend does not say which version answered. A rollout whose log-probabilities are those of one version's weights,
and of neither neighbour's, can only have come from that version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

ROLLOUTS = 16
"""How many rollouts of a step are compared with each version: a forward pass each, without gradients."""

T = TypeVar("T")


@dataclass(frozen=True)
class VersionFit:
    """For each of some rollouts the largest |trainer - engine| of its tokens' log-probabilities under `version`."""

    version: int
    max_abs: list[float]


def spread(items: Sequence[T], count: int = ROLLOUTS) -> list[T]:
    """At most `count` of `items`, evenly over all of them."""
    return list(items[:: max(1, -(-len(items) // count))])


def largest_gaps(trainer: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> list[float]:
    """For each row of [N, T] the largest |trainer - engine| where `mask` is true."""
    gaps = (trainer.double() - engine.double()).abs().masked_fill(~mask.bool(), 0.0)
    return [float(gap) for gap in gaps.amax(dim=1)]


def copied(model: Any) -> list[torch.Tensor]:
    """The model's weights of this moment, in the order of its parameters."""
    return [parameter.detach().clone() for parameter in model.parameters()]


@contextmanager
def exchanged(model: Any, weights: Sequence[torch.Tensor]) -> Iterator[None]:
    """The model with other weights for a while. Nothing is copied: the tensors change places."""
    parameters = list(model.parameters())
    own = [parameter.data for parameter in parameters]
    try:
        for parameter, other in zip(parameters, weights, strict=True):
            parameter.data = other
        yield
    finally:
        for parameter, mine in zip(parameters, own, strict=True):
            parameter.data = mine
