"""vLLM's plugin entry point: puts the Gloo pair into its two weight-transfer registries.

vLLM calls `register` in every process, and a trainer calls it itself; it registers once per process. The engine
classes are named, not imported: a process that never transfers weights never loads them.
"""

from __future__ import annotations

BACKEND = "gloo"
MODULE = "smokestack_payload.refit.gloo"

_registered = False


def register() -> None:
    """Make `--weight-transfer-config '{"backend": "gloo"}'` and `GlooTrainerInitInfo` known to vLLM. Idempotent.

    The 0.26 line has no registry of trainers, and other engines: there the pair has no place, and "gloo" stays unknown.
    """
    global _registered  # noqa: PLW0603 - once per process is the point
    if _registered:
        return
    from vllm.distributed.weight_transfer import factory

    if not hasattr(factory, "WeightTransferTrainerFactory"):
        return
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    WeightTransferEngineFactory.register_engine(BACKEND, MODULE, "GlooWeightTransferEngine")
    WeightTransferTrainerFactory.register_engine(BACKEND, MODULE, "GlooTrainerWeightTransferEngine")
    _registered = True
