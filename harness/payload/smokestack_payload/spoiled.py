"""Tensors and rollouts that are wrong on purpose, for `sabotage`. Imports torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from smokestack_payload.rollout import Prompt, RolloutBatch, Sampler
from smokestack_payload.step import Stepper

Named = tuple[str, torch.Tensor]
EVERY = 64
"""One rollout in so many asks for a model that nobody serves."""

NOBODYS_MODEL = "nobody"


class SpoiledSource:
    """A weight source whose tensors are wrong whenever `strikes()`; what it announces is right."""

    def __init__(self, source: Any, spoil: Callable[[list[Named]], list[Named]], strikes: Callable[[], bool]) -> None:
        self._source = source
        self._spoil = spoil
        self._strikes = strikes

    def metadata(self) -> Any:
        return self._source.metadata()

    def __iter__(self) -> Iterator[Named]:
        tensors = list(self._source)
        return iter(self._spoil(tensors) if self._strikes() else tensors)


class HalfSource:
    """A weight source that knows the first half of the names, and nothing of the others."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def metadata(self) -> Any:
        metas = list(self._source.metadata())
        return metas[: len(metas) // 2]

    def __iter__(self) -> Iterator[Named]:
        tensors = list(self._source)
        return iter(tensors[: len(tensors) // 2])


def one_corrupted(tensors: list[Named]) -> list[Named]:
    """One bit of the smallest tensor flipped: the lowest of its first number. The trainer's own tensor stays right."""
    chosen = min(range(len(tensors)), key=lambda place: tensors[place][1].numel())
    name, tensor = tensors[chosen]
    wrong = tensor.detach().clone().contiguous()
    wrong.view(-1).view(torch.uint8)[0] ^= 1
    return [*tensors[:chosen], (name, wrong), *tensors[chosen + 1 :]]


def swapped(tensors: list[Named]) -> list[Named]:
    """The two largest tensors of equal shape and type, each under the other's name."""
    places: dict[tuple[tuple[int, ...], torch.dtype], list[int]] = {}
    for place, (_, tensor) in enumerate(tensors):
        places.setdefault((tuple(tensor.shape), tensor.dtype), []).append(place)
    pairs = [found[:2] for found in places.values() if len(found) > 1]
    first, second = max(pairs, key=lambda pair: tensors[pair[0]][1].numel())
    spoiled = list(tensors)
    spoiled[first] = (tensors[first][0], tensors[second][1])
    spoiled[second] = (tensors[second][0], tensors[first][1])
    return spoiled


class ErringSampler(Sampler):
    """One request in `EVERY` is one that the frontend must refuse."""

    def _body(self, prompt_ids: list[int], seed: int) -> dict[str, Any]:
        body = super()._body(prompt_ids, seed)
        return {**body, "model": NOBODYS_MODEL} if seed % EVERY == 0 else body


class StaleStepper(Stepper):
    """Every step is taken with the first one's rollouts, as if they had been sampled from the version of now.

    Those of now are asked for all the same: what engines serve is another check's to count.
    """

    _kept: tuple[list[Prompt], RolloutBatch] | None = None

    def _sampled(self, step: int) -> tuple[list[Prompt], RolloutBatch]:
        sampled = super()._sampled(step)
        if self._kept is None:
            self._kept = sampled
        return self._kept


class HalfWritten:
    """A transfer by files whose checkpoint of the version `strikes` lacks the last byte of a file."""

    def __init__(self, transfer: Any, strikes: str) -> None:
        self._transfer = transfer
        self._strikes = strikes

    def prepare(self, version: str) -> None:
        self._transfer.prepare(version)
        if version == self._strikes:
            last = max(self._transfer.written.glob("*.safetensors"))
            os.truncate(last, last.stat().st_size - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transfer, name)
