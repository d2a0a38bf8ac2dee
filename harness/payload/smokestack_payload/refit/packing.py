"""Buckets: how a stream of tensors is cut into few large messages, the same way on both sides.

Sender and receiver each compute the plan from the same metadata and the same bucket size, so no layout travels.
A bucket's bytes are the tensors one after another, each aligned so that it can be viewed in place as its own type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smokestack_payload.refit.buffers import BufferPool

ALIGNMENT = 64
"""Bytes. A cache line, and a multiple of every element size."""

DEFAULT_BUCKET_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class TensorSpec:
    """What one tensor is, without its values."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Slot:
    """A tensor's place in its bucket; `offset` in bytes."""

    spec: TensorSpec
    offset: int


@dataclass(frozen=True)
class Bucket:
    """One message of `nbytes` bytes (0 when all of its tensors are empty)."""

    slots: tuple[Slot, ...]
    nbytes: int


def plan_buckets(specs: Iterable[TensorSpec], bucket_bytes: int) -> list[Bucket]:
    """Cut `specs`, in order, into buckets of at most `bucket_bytes`; a larger tensor gets a bucket of its own."""
    if bucket_bytes < 1:
        raise ValueError(f"bucket size must be at least 1 byte, not {bucket_bytes}")
    buckets: list[Bucket] = []
    slots: list[Slot] = []
    end = 0
    for spec in specs:
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        if slots and offset + spec.nbytes > bucket_bytes:
            buckets.append(Bucket(tuple(slots), end))
            slots, offset = [], 0
        slots.append(Slot(spec, offset))
        end = offset + spec.nbytes
    if slots:
        buckets.append(Bucket(tuple(slots), end))
    return buckets


def count_buckets(metas: Iterable[Any], bucket_bytes: int) -> int:
    """How many buckets the tensors described by `metas` (vLLM's `ParamMeta`) take."""
    specs = [TensorSpec(meta.name, meta.dtype, tuple(meta.shape)) for meta in metas]
    return len(plan_buckets(specs, bucket_bytes))


def pack(bucket: Bucket, tensors: Sequence[torch.Tensor], pool: BufferPool) -> torch.Tensor:
    """The bucket's bytes (uint8, [nbytes], on the CPU).

    A bucket of one contiguous tensor that is there already is that tensor's own memory: it must not change meanwhile.
    """
    if len(tensors) == 1 and tensors[0].is_contiguous() and tensors[0].device.type == "cpu":
        return tensors[0].detach().reshape(-1).view(torch.uint8)
    packed = take(bucket, pool)
    for view, tensor in zip(_views(bucket, packed), tensors, strict=True):
        view.copy_(tensor.detach())
    return packed


def take(bucket: Bucket, pool: BufferPool) -> torch.Tensor:
    """Room for the bucket's bytes."""
    return pool.take(bucket.nbytes) if bucket.nbytes else torch.empty(0, dtype=torch.uint8)


def unpack(bucket: Bucket, packed: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Name and tensor for each slot. The tensors are views: `packed` must not be written to while they live."""
    return [(slot.spec.name, view) for slot, view in zip(bucket.slots, _views(bucket, packed), strict=True)]


def _views(bucket: Bucket, packed: torch.Tensor) -> Iterator[torch.Tensor]:
    for slot in bucket.slots:
        spec = slot.spec
        yield packed[slot.offset : slot.offset + spec.nbytes].view(spec.dtype).view(spec.shape)
