"""vLLM's worker extension: methods that `/collective_rpc` can call in every worker, for the harness to ask the engine.

`--worker-extension-cls smokestack_payload.worker.ContentWorker` mixes the class into vLLM's own worker. vLLM is
imported inside the methods: the class is resolved while the worker's own modules are still being loaded.
"""

from __future__ import annotations

from typing import Any


class ContentWorker:
    """Mixed into a worker: tells what its model holds, and can destroy it."""

    def smokestack_contents(self: Any, whole: bool = False) -> dict[str, Any]:
        """`prefix` is what vLLM's `/weight_checker` puts before this rank's names; `parameters` see `contents.Told`.

        With `whole` also the digests that are otherwise left to that route; no prefix then, as nothing is looked up.
        """
        from smokestack_payload.contents import told

        prefix = "" if whole else self._weight_checksum_prefix()
        return {"prefix": prefix, "parameters": told(self.model_runner.get_model(), whole=whole)}

    def smokestack_destroy(self: Any) -> None:
        """Make every weight zero, those included that the CPU backend has repacked and vLLM's own reset passes by."""
        from smokestack_payload.destroy import repack_zeros

        self.reset_weights()
        repack_zeros(self.model_runner.get_model())
