"""NCCL refits by the static helpers of vLLM's 0.26 line: its functions move the bytes, and the round is ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smokestack_payload.background import in_background
from smokestack_payload.errors import ProtocolError
from smokestack_payload.refit.nccl import FIRST_WORKER, TRAINER_RANK, Agreeing, abort, vllm_engines, wire
from smokestack_payload.settings import PackingSettings, Plan, TrainerSettings


def transfer(client: Agreeing, source: Any, settings: TrainerSettings, plan: Plan) -> HelperTransfer:
    """Form the group with every worker. Raises ProtocolError for a vLLM that has no such functions."""
    helpers = vllm_engines().NCCLWeightTransferEngine
    for name in ("trainer_init", "trainer_send_weights"):
        if not hasattr(helpers, name):
            raise ProtocolError(
                f"vLLM's NCCL engine has no {name}",
                expected="a release with static helpers, as the 0.26 line",
                found="a release without",
                where="transfer",
                hint="the stack's dialect must be that of its release of vLLM",
            )
    where = {
        "master_address": plan.master_address,
        "master_port": plan.master_port,
        "world_size": plan.world_size,
    }
    reply = in_background("init-workers", client.init_weight_transfer_engine, {**where, "rank_offset": FIRST_WORKER})
    group = helpers.trainer_init(where)
    reply.result()
    return HelperTransfer(client, source, helpers, group, settings.packing)


class HelperTransfer:
    """The transfer that the session drives."""

    def __init__(self, client: Any, source: Any, helpers: Any, group: Any, packing: PackingSettings) -> None:
        self._client = client
        self._source = source
        self._helpers = helpers
        self._group = group
        self._wire = wire(packing)

    def send_weights(self) -> None:
        """Start, update while broadcasting, finish, as the newer engine does it."""
        if self._group is None:
            raise RuntimeError("the transfer group was given up")
        metas = self._source.metadata()
        update = {
            "names": [meta.name for meta in metas],
            "dtype_names": [str(meta.dtype).removeprefix("torch.") for meta in metas],
            "shapes": [list(meta.shape) for meta in metas],
            **self._wire,
        }
        self._client.start_weight_update()
        reply = in_background("update-workers", self._client.update_weights, update)
        arguments = {"group": self._group, "src": TRAINER_RANK, **self._wire}
        self._helpers.trainer_send_weights(_as_announced(self._source, metas), arguments)
        reply.result()
        self._client.finish_weight_update()
        _synchronize()

    def abort(self) -> None:
        group, self._group = self._group, None
        abort(group)

    shutdown = abort


def _as_announced(source: Any, metas: list[Any]) -> Iterator[tuple[str, Any]]:
    """The source's tensors, each held to what was announced: a silent difference would shift all that follow."""
    announced = iter(metas)
    for name, tensor in source:
        meta = next(announced, None)
        if meta is None or (name, tensor.dtype, tuple(tensor.shape)) != (meta.name, meta.dtype, tuple(meta.shape)):
            raise ValueError(f"the source yields {name} {tensor.dtype} {tuple(tensor.shape)}, announced was {meta}")
        yield name, tensor.contiguous()
    left = next(announced, None)
    if left is not None:
        raise ValueError(f"the source yields nothing for {left.name}, which was announced")


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
