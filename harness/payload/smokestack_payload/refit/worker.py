"""vLLM's worker extension for refits that do not go through the engine's routes for weights: over a group or by files.

`--worker-extension-cls smokestack_payload.refit.worker.RefitWorker`, called through `/collective_rpc`. What changes
something returns nothing, so that a good answer is exactly one null per rank. vLLM is imported inside the methods, as
in `worker`.
"""

from __future__ import annotations

from typing import Any

from smokestack_payload.worker import ContentWorker

UNNAMED = "default"
"""What vLLM itself calls weights that nobody has named."""


class RefitWorker(ContentWorker):
    """Mixed into a worker: receives weights, and keeps the version that they were given."""

    _smokestack_receiver: Any = None
    _smokestack_updating: bool = False
    _smokestack_version: str = UNNAMED

    def smokestack_init_transfer(self: Any, backend: str, init_info: dict[str, Any]) -> None:
        """Join the trainer's group, with an engine of vLLM's registry that is this worker's alone."""
        self._smokestack_receiver = _receiver(backend, self)
        self._smokestack_receiver.init_transfer_engine(self._smokestack_receiver.parse_init_info(init_info))

    def smokestack_start_update(self: Any) -> None:
        from vllm.config import set_current_vllm_config

        receiver = _require_receiver(self)
        if self._smokestack_updating:
            raise RuntimeError("a weight update is already active")
        with set_current_vllm_config(self.vllm_config):
            receiver.start_weight_update()
        self._smokestack_updating = True

    def smokestack_update(self: Any, update_info: dict[str, Any]) -> None:
        from vllm.config import set_current_vllm_config

        receiver = _require_update(self)
        with set_current_vllm_config(self.vllm_config):
            receiver.update_weights(update_info)

    def smokestack_finish_update(self: Any) -> None:
        from vllm.config import set_current_vllm_config

        receiver = _require_update(self)
        with set_current_vllm_config(self.vllm_config):
            receiver.finish_weight_update()
        self._smokestack_updating = False

    def smokestack_begin_reload(self: Any, folder: str) -> None:
        """Before vLLM's own `reload_weights`: only a whole checkpoint may cost the weights that are there."""
        from pathlib import Path

        from smokestack_payload.refit.checkpoint import require_whole

        if self._smokestack_updating:
            raise RuntimeError("a weight update is already active")
        require_whole(Path(folder))
        self._smokestack_updating = True

    def smokestack_end_reload(self: Any) -> None:
        """After it: layers that share another layer's parameter derive their state from the new values."""
        from vllm.config import set_current_vllm_config

        from smokestack_payload.refit.gloo import refresh_tied_layers

        if not self._smokestack_updating:
            raise RuntimeError("no reload has begun: smokestack_begin_reload comes first")
        with set_current_vllm_config(self.vllm_config):
            refresh_tied_layers(self.model_runner.get_model())
        self._smokestack_updating = False

    def smokestack_set_version(self: Any, version: str) -> None:
        """Call the weights of now `version`. Not while they are half replaced."""
        if self._smokestack_updating:
            raise RuntimeError(f"the weight update is not finished: it cannot be called {version!r} yet")
        self._smokestack_version = version

    def smokestack_weight_version(self: Any) -> str:
        version: str = self._smokestack_version
        return version

    def smokestack_update_open(self: Any) -> bool:
        """Whether somebody began an update and has not finished it; one that failed stays open."""
        updating: bool = self._smokestack_updating
        return updating


def _receiver(backend: str, worker: Any) -> Any:
    from vllm.config import set_current_vllm_config
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    model = worker.model_runner.get_model()
    with set_current_vllm_config(worker.vllm_config):
        return WeightTransferEngineFactory.create_engine(
            WeightTransferConfig(backend=backend), worker.vllm_config, worker.device, model
        )


def _require_receiver(worker: Any) -> Any:
    if worker._smokestack_receiver is None:
        raise RuntimeError("there is no transfer group: smokestack_init_transfer comes first")
    return worker._smokestack_receiver


def _require_update(worker: Any) -> Any:
    if not worker._smokestack_updating:
        raise RuntimeError("no weight update is active: smokestack_start_update comes first")
    return _require_receiver(worker)
