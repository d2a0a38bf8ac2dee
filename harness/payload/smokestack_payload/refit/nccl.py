"""NCCL refits by vLLM's own trainer side: its engine, or in releases of the 0.26 line its helpers (`nccl_helpers`).

Both are driven through the same client as every other backend, and give up a communicator by aborting it: a destroy is
a collective, which waits for peers that may be gone. The packing is the trainer's to decide and travels to the workers,
in the init info or, in the older line, with each update; what does not fit it is refused before an engine hears of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from typing import Any

from smokestack_payload.background import in_background
from smokestack_payload.errors import ProtocolError, RefitError
from smokestack_payload.refit.admin import EngineFleet
from smokestack_payload.settings import PackingSettings, Plan, TrainerSettings

TCP, UNIQUE_ID = "tcp", "unique-id"
TRAINER_ENGINE, STATIC_HELPERS = "trainer-engine", "static-helpers"
TRAINER_RANK = 0
FIRST_WORKER = 1
ABORT_S = 5.0
"""How long an abort may take before it is left to the end of the process."""


def wire(packing: PackingSettings) -> dict[str, Any]:
    """The packing in vLLM's own words."""
    return {
        "packed": packing.packed,
        "packed_buffer_size_bytes": packing.buffer_bytes,
        "packed_num_buffers": packing.buffers,
    }


def connector(settings: TrainerSettings, plan: Plan) -> Callable[[EngineFleet, Any], Any]:
    """A function `(client, source) -> transfer engine`. Raises ProtocolError for what this vLLM cannot do."""
    known = {
        (TRAINER_ENGINE, TCP): _by_store,
        (TRAINER_ENGINE, UNIQUE_ID): _by_unique_id,
        (STATIC_HELPERS, TCP): _by_helpers,
    }
    chosen = (settings.transfer, settings.rendezvous)
    if chosen not in known:
        raise ProtocolError(
            "this vLLM has no such way to make an NCCL group",
            expected="; ".join(" with ".join(one) for one in known),
            found=" with ".join(chosen),
            where="transfer, rendezvous",
        )
    make = known[chosen]
    return lambda fleet, source: make(Agreeing(fleet, settings), source, settings, plan)


class Agreeing:
    """The client that vLLM's trainer side gets: passes on what fits this run's packing, and nothing else.

    A refusal ends the session's wait as an engine's own would: whoever called may be inside a collective by then.
    """

    def __init__(self, fleet: EngineFleet, settings: TrainerSettings) -> None:
        self._fleet = fleet
        self._wire = wire(settings.packing)
        self._told_at = "update" if settings.transfer == STATIC_HELPERS else "init"

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._require(init_info, "init")
        self._fleet.init_weight_transfer_engine(init_info)

    def start_weight_update(self) -> None:
        self._fleet.start_weight_update()

    def update_weights(self, update_info: Any) -> None:
        self._require(update_info, "update")
        self._fleet.update_weights(update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._fleet.finish_weight_update(weight_version)

    def _require(self, told: Mapping[str, Any], phase: str) -> None:
        if phase != self._told_at:
            return
        found = {name: told.get(name) for name in self._wire}
        if found != self._wire:
            refused = RefitError(
                "trainer and workers would cut the weights in different ways: nothing was sent",
                expected=str(self._wire),
                found=str(found),
                hint="this vLLM names its packing otherwise: the stack's dialect must be that of its release",
            )
            self._fleet.fail(refused)
            raise refused


class NcclTransfer:
    """vLLM's trainer-side engine, as the session drives it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def send_weights(self) -> None:
        self._engine.send_weights()

    def abort(self) -> None:
        """Give the group up from this side alone. Nothing is sent over it any more."""
        communicator, self._engine.model_update_group = self._engine.model_update_group, None
        abort(communicator)

    shutdown = abort


def abort(communicator: Any) -> None:
    """Free a communicator without its peers. Where vLLM has no way to, the end of the process does it.

    `ncclCommAbort` may itself wait for work on the device, so it runs in the background and is left there in the end.
    """
    if communicator is None or getattr(communicator, "disabled", False):
        return
    communicator.available, communicator.disabled = False, True
    free = getattr(getattr(communicator, "nccl", None), "ncclCommAbort", None)
    if free is not None:
        wait([in_background("abort-nccl", free, communicator.comm)], timeout=ABORT_S)


def count_messages(metas: Iterable[Any], packing: PackingSettings) -> int:
    """How many broadcasts vLLM makes of these tensors: a buffer is closed by the tensor that exceeds it."""
    sizes = [meta.dtype.itemsize * _elements(meta.shape) for meta in metas]
    if not packing.packed:
        return len(sizes)
    messages, filled = 0, 0
    for size in sizes:
        filled += size
        if filled > packing.buffer_bytes:
            messages, filled = messages + 1, 0
    return messages + (filled > 0)


def _by_store(client: Agreeing, source: Any, settings: TrainerSettings, plan: Plan) -> NcclTransfer:
    """vLLM's own rendezvous, over a store at the master's address."""
    engines = vllm_engines()
    init_info = engines.NCCLTrainerInitInfo(
        rank=TRAINER_RANK,
        master_address=plan.master_address,
        master_port=plan.master_port,
        world_size=plan.world_size,
        **wire(settings.packing),
    )
    return NcclTransfer(engines.NCCLTrainerWeightTransferEngine.trainer_init(init_info, client=client, source=source))


def _by_unique_id(client: Agreeing, source: Any, settings: TrainerSettings, plan: Plan) -> NcclTransfer:
    """NCCL's own rendezvous: the trainer makes the id and tells it to the workers. All ranks enter at once."""
    engines, (unique_id, join) = vllm_engines(), _unique_id()
    engine = engines.NCCLTrainerWeightTransferEngine(client=client, source=source, **wire(settings.packing))
    worker = {
        "rank_offset": FIRST_WORKER,
        "world_size": plan.world_size,
        "nccl_unique_id_b64": base64.b64encode(unique_id).decode("ascii"),
        **wire(settings.packing),
    }
    reply = in_background("init-workers", client.init_weight_transfer_engine, worker)
    engine.model_update_group = join(unique_id, plan.world_size)
    reply.result()
    return NcclTransfer(engine)


def _by_helpers(client: Agreeing, source: Any, settings: TrainerSettings, plan: Plan) -> Any:
    from smokestack_payload.refit import nccl_helpers

    return nccl_helpers.transfer(client, source, settings, plan)


def vllm_engines() -> Any:
    """vLLM's module of its NCCL engines."""
    from vllm.distributed.weight_transfer import nccl_engine

    return nccl_engine


def _unique_id() -> tuple[bytes, Callable[[bytes, int], Any]]:
    """A fresh id of NCCL, and vLLM's way for this process to join a group by it."""
    import torch
    from vllm.distributed.device_communicators.pynccl_wrapper import NCCLLibrary
    from vllm.distributed.weight_transfer.nccl_common import uid_init_process_group

    unique_id = bytes(NCCLLibrary().ncclGetUniqueId())

    def join(known: bytes, world_size: int) -> Any:
        return uid_init_process_group(known, TRAINER_RANK, world_size, torch.accelerator.current_device_index())

    return unique_id, join


def _elements(shape: Iterable[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
