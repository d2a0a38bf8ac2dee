"""The one place that knows how weights travel, and what each transfer backend wants to be told at its start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from smokestack_payload.errors import ProtocolError
from smokestack_payload.refit.admin import EngineFleet
from smokestack_payload.refit.filesystem import FilesystemTransfer
from smokestack_payload.refit.protocols import FILESYSTEM
from smokestack_payload.settings import Plan, TrainerSettings

PATIENCE = 0.8
"""Share of the rendezvous limit after which the trainer gives up by itself, naming the ranks that joined."""


def connector(settings: TrainerSettings, plan: Plan) -> Callable[[EngineFleet, Any], Any]:
    """A function `(client, source) -> transfer`: by files, or vLLM's trainer-side engine of the configured backend."""
    if settings.refit == FILESYSTEM:
        return lambda fleet, source: FilesystemTransfer(fleet, source, settings.checkpoints)
    if settings.backend == "nccl":
        from smokestack_payload.refit import nccl

        return nccl.connector(settings, plan)
    if settings.backend != "gloo":
        raise ProtocolError("no such refit backend", expected="gloo or nccl", found=settings.backend, where="backend")

    def connect(fleet: EngineFleet, source: Any) -> Any:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        from smokestack_payload.refit.wire import GlooTrainerInitInfo

        init_info = GlooTrainerInitInfo(
            rank=0,
            master_address=plan.master_address,
            master_port=plan.master_port,
            world_size=plan.world_size,
            bucket_bytes=settings.bucket_bytes,
            rendezvous_s=settings.deadlines.rendezvous_s * PATIENCE,
            transfer_s=settings.deadlines.refit_s,
        )
        return WeightTransferTrainerFactory.trainer_init(init_info, client=fleet, source=source)

    return connect


def count_messages(settings: TrainerSettings, metas: Iterable[Any]) -> int:
    """How many messages one refit of these tensors takes."""
    if settings.backend == "nccl":
        from smokestack_payload.refit import nccl

        return nccl.count_messages(metas, settings.packing)
    from smokestack_payload.refit.packing import count_buckets

    return count_buckets(metas, settings.bucket_bytes)
