"""The Gloo pair for vLLM's weight-transfer registry: packed broadcasts between CPU processes.

Wire format: see `packing`. The worker receives the next bucket while the model loads this one, so the transfer hides
behind the load. The trainer decides bucket size and time limits; they travel in the init info, so that both sides
agree. The rendezvous is in `rendezvous`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict
from itertools import islice
from typing import Any, Self

import torch
from vllm.distributed.weight_transfer.base import (
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferEngine,
)

from smokestack_payload.background import in_background
from smokestack_payload.refit.buffers import BufferPool
from smokestack_payload.refit.packing import Bucket, TensorSpec, pack, plan_buckets, take, unpack
from smokestack_payload.refit.rendezvous import TransferGroup, host_group, join_group
from smokestack_payload.refit.wire import IN_FLIGHT, GlooInitInfo, GlooTrainerInitInfo, GlooUpdateInfo, Transfer


class GlooWeightTransferEngine(WeightTransferEngine[GlooInitInfo, GlooUpdateInfo]):
    """In every worker: receives packed buckets from the trainer and loads them layer by layer."""

    init_info_cls = GlooInitInfo
    update_info_cls = GlooUpdateInfo

    _group: TransferGroup | None = None
    _init: GlooInitInfo
    _pool: BufferPool

    def init_transfer_engine(self, init_info: GlooInitInfo) -> None:
        """Join the trainer's group. A former group is dropped: a new trainer may attach to a living engine."""
        self.shutdown()
        parallel = self.parallel_config
        rank = parallel.data_parallel_index * parallel.world_size + parallel.rank + init_info.rank_offset
        self._init = init_info
        self._pool = BufferPool(init_info.bucket_bytes)
        self._group = join_group(
            init_info.master_address,
            init_info.master_port,
            rank,
            init_info.world_size,
            rendezvous_s=init_info.rendezvous_s,
            transfer_s=init_info.transfer_s,
        )

    def start_weight_update(self) -> None:
        """Open a layer-by-layer reload of the whole model."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Close the reload: process the layers that are still waiting, restore those that got nothing."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        refresh_tied_layers(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base class, without its accelerator barrier: there is none here, and loading is synchronous."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: GlooUpdateInfo) -> None:
        """Receive and load all buckets, and report to the trainer how long that took."""
        if self._group is None:
            raise RuntimeError("the transfer group is not there: init_weight_transfer_engine comes first")
        buckets = plan_buckets(update_info.specs(), self._init.bucket_bytes)
        begun = time.monotonic()
        loading = 0.0
        received = self._received(self._group, buckets)
        if not self._init.overlap:
            received = iter(list(received))
        for bucket, packed in received:
            load_begun = time.monotonic()
            self.model.load_weights(unpack(bucket, packed))
            del packed
            loading += time.monotonic() - load_begun
        self._group.publish({"receive_and_load_s": time.monotonic() - begun, "load_s": loading})

    def _received(self, group: TransferGroup, buckets: list[Bucket]) -> Iterator[tuple[Bucket, torch.Tensor]]:
        """Each bucket with its bytes; the next ones are on their way while the caller works on this one.

        A bucket's buffer is not used for another one while a tensor refers to it: the layer-by-layer reload keeps
        views of it until the layer is complete.
        """
        pending: deque[Transfer] = deque()
        upcoming = iter(buckets)
        for bucket in buckets:
            for following in islice(upcoming, IN_FLIGHT - len(pending)):
                pending.append(Transfer.begin(group, take(following, self._pool)))
            yield bucket, pending.popleft().wait()

    def shutdown(self) -> None:
        self._group = None


def refresh_tied_layers(model: torch.nn.Module) -> None:
    """Let each layer that shares another layer's parameter derive its state from the new values.

    A tied output head receives no tensor of its own, so vLLM's reload leaves it as it was. Its weight is right (it is
    the embedding's), but on the CPU it multiplies by a packed copy that was made from the old one.
    """
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    owners: dict[int, torch.nn.Module] = {}
    for layer in model.modules():
        borrowed = [p for p in layer.parameters(recurse=False) if owners.setdefault(id(p), layer) is not layer]
        method = getattr(layer, "quant_method", None)
        if borrowed and isinstance(method, QuantizeMethodBase):
            method.process_weights_after_loading(layer)


class GlooTrainerWeightTransferEngine(TrainerWeightTransferEngine[GlooTrainerInitInfo]):
    """In the trainer: broadcasts the source's tensors in buckets, packing the next one while this one travels."""

    init_info_cls = GlooTrainerInitInfo

    def __init__(
        self, *, client: VLLMWeightSyncClient, source: WeightSource, group: TransferGroup, bucket_bytes: int
    ) -> None:
        super().__init__(client=client, source=source, is_sender=True)
        self._source = source
        self._group: TransferGroup | None = group
        self._bucket_bytes = bucket_bytes
        self._pool = BufferPool(bucket_bytes)

    @classmethod
    def trainer_init(
        cls,
        init_info: GlooTrainerInitInfo,
        *,
        client: VLLMWeightSyncClient,
        source: WeightSource | None = None,
    ) -> Self:
        """Rendezvous with all workers, bounded. One trainer process only: it is the sender."""
        if source is None or not init_info.is_sender:
            raise ValueError("the gloo backend wants a weight source and a single trainer process of rank 0")
        worker = asdict(GlooInitInfo(rank_offset=1, **_shared(init_info)))
        reply = in_background("init-workers", client.init_weight_transfer_engine, worker)
        group = host_group(
            init_info.master_address,
            init_info.master_port,
            init_info.world_size,
            rendezvous_s=init_info.rendezvous_s,
            transfer_s=init_info.transfer_s,
            check=lambda: _raise_if_failed(reply),
        )
        reply.result(timeout=init_info.rendezvous_s)
        return cls(client=client, source=source, group=group, bucket_bytes=init_info.bucket_bytes)

    def send_weights(self) -> None:
        """Start, update while broadcasting, finish. Blocks for at most the transfer limit without progress.

        Whoever calls it must be able to abandon it: a peer that stops receiving is noticed at that limit only.
        """
        if self._group is None:
            raise RuntimeError("the transfer group was shut down")
        metas = self._source.metadata()
        specs = [TensorSpec(meta.name, meta.dtype, tuple(meta.shape)) for meta in metas]
        update = GlooUpdateInfo(
            names=[spec.name for spec in specs],
            dtype_names=[str(spec.dtype).removeprefix("torch.") for spec in specs],
            shapes=[list(spec.shape) for spec in specs],
        )
        self.client.start_weight_update()
        reply = in_background("update-workers", self.client.update_weights, asdict(update))
        self._broadcast(self._group, plan_buckets(specs, self._bucket_bytes))
        reply.result()
        self.client.finish_weight_update()

    @property
    def worker_reports(self) -> dict[int, dict[str, float]]:
        """Seconds of the last round as each worker rank measured them: `receive_and_load_s`, of it `load_s`."""
        return self._group.reports() if self._group is not None else {}

    def _broadcast(self, group: TransferGroup, buckets: list[Bucket]) -> None:
        tensors = iter(self._source)
        pending: deque[Transfer] = deque()
        for bucket in buckets:
            packed = pack(bucket, [_checked(slot.spec, *next(tensors)) for slot in bucket.slots], self._pool)
            if len(pending) == IN_FLIGHT:
                pending.popleft().wait()
            pending.append(Transfer.begin(group, packed))
        for transfer in pending:
            transfer.wait()

    def shutdown(self) -> None:
        self._group = None

    def abort(self) -> None:
        """As an orderly end: a Gloo group needs no peer for it."""
        self.shutdown()


def _shared(init_info: GlooTrainerInitInfo) -> dict[str, Any]:
    return {name: value for name, value in asdict(init_info).items() if name != "rank"}


def _raise_if_failed(reply: Future[None]) -> None:
    if reply.done():
        error = reply.exception()
        if error is not None:
            raise RuntimeError(f"an engine refused to join: {error}") from error


def _checked(spec: TensorSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, if it is what the workers were told to expect; a silent difference would shift all that follow."""
    found = TensorSpec(name, tensor.dtype, tuple(tensor.shape))
    if found != spec:
        raise ValueError(f"the source yields {found}, but its metadata announced {spec}")
    return tensor
