"""What the two sides of the Gloo pair say to each other: init and update information, and one broadcast under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from vllm.distributed.weight_transfer.base import TrainerInitInfo, WeightTransferInitInfo, WeightTransferUpdateInfo

from smokestack_payload.plugin import BACKEND
from smokestack_payload.refit.packing import DEFAULT_BUCKET_BYTES, TensorSpec
from smokestack_payload.refit.rendezvous import TransferGroup

IN_FLIGHT = 2
"""Broadcasts under way at once: with one alone, the line idles whenever loading takes longer than receiving."""


@dataclass
class GlooInitInfo(WeightTransferInitInfo):
    """Worker side. `rank_offset` is the group rank of the engine's first worker; sizes in bytes, times in seconds.

    `overlap` False receives everything before the first load; only the bench asks for it.
    """

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    bucket_bytes: int = DEFAULT_BUCKET_BYTES
    rendezvous_s: float = 60.0
    transfer_s: float = 120.0
    overlap: bool = True


@dataclass
class GlooUpdateInfo(WeightTransferUpdateInfo):
    """What the trainer is about to broadcast: parallel lists over tensors, in sending order."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]

    def specs(self) -> list[TensorSpec]:
        """Raises ValueError for lists of unequal length, names given twice, or a type that torch does not have."""
        if not len(self.names) == len(self.dtype_names) == len(self.shapes):
            raise ValueError(
                f"names, dtype_names and shapes differ in length: "
                f"{len(self.names)}, {len(self.dtype_names)}, {len(self.shapes)}"
            )
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"named twice: {sorted({name for name in self.names if self.names.count(name) > 1})}")
        return [
            TensorSpec(name, _dtype(dtype_name), tuple(shape))
            for name, dtype_name, shape in zip(self.names, self.dtype_names, self.shapes, strict=True)
        ]


@dataclass
class GlooTrainerInitInfo(TrainerInitInfo):
    """Trainer side. `world_size` counts the trainer (rank 0) and every worker of every engine."""

    backend: ClassVar[str] = BACKEND

    master_address: str
    master_port: int
    world_size: int
    bucket_bytes: int = DEFAULT_BUCKET_BYTES
    rendezvous_s: float = 60.0
    transfer_s: float = 120.0
    overlap: bool = True


@dataclass(frozen=True)
class Transfer:
    """One broadcast under way, with the buffer it reads or fills. An empty buffer never travels."""

    work: Any
    packed: torch.Tensor

    @classmethod
    def begin(cls, group: TransferGroup, packed: torch.Tensor) -> Self:
        return cls(group.begin_broadcast(packed) if packed.numel() else None, packed)

    def wait(self) -> torch.Tensor:
        if self.work is not None:
            self.work.wait()
        return self.packed


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a torch dtype")
    return dtype
