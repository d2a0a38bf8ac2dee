"""Typed clients of what the stack serves over HTTP: the engine's admin routes, the sidecar's controls, the frontend.

The admin routes ask for no key of their own; every call carries what the run was given. How a call is made, and what
counts as its answer, is in `calling`. Shapes: vLLM 0.32 (development mode) and Dynamo 1.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.answers import (
    ChatAnswer,
    ChatCompletion,
    Checksums,
    CompletionAnswer,
    Contents,
    Generated,
    ModelList,
    Obeyed,
    Paused,
    RankContents,
    Succeeded,
    WeightVersion,
    WorkersUpdating,
    WorkerVersions,
    WorldSize,
)
from harness.calling import HttpBodyError, HttpClient, HttpStatusError
from harness.metrics import finished_requests

ALREADY_OPEN = "already active"
"""What vLLM answers to the start of a weight update while another one is open."""

LOAD_ADAPTER, UNLOAD_ADAPTER = "update/load_lora", "update/unload_lora"
"""As discovery lists them for a worker whose sidecar takes adapters."""


@dataclass(frozen=True)
class EngineAdmin:
    """The engine's own HTTP server, with vLLM's development-mode routes."""

    http: HttpClient

    def is_paused(self) -> bool:
        return self.http.get("/is_paused", Paused).is_paused

    def weight_version(self) -> str:
        """The label as served: "default" until a refit sets one. A label alone proves no weights."""
        return str(self.http.get("/weight_info", WeightVersion).weight_version)

    def world_size(self) -> int:
        return self.http.get("/get_world_size", WorldSize).world_size

    def has_open_update(self) -> bool:
        """Whether a weight update is open. No route tells, so one is opened, and closed again without a version.

        An engine that refuses for another reason has none; what that reason is shows at the first refit.
        """
        try:
            self.http.call("POST", "/start_weight_update")
        except HttpStatusError as refused:
            return refused.status == 500 and ALREADY_OPEN in (refused.found or "")
        self.http.call("POST", "/finish_weight_update", {})
        return False

    def finished_requests(self) -> int | None:
        """How many requests it has finished since its start; None where it does not tell."""
        return finished_requests(self.http.call("GET", "/metrics").decode("utf-8", errors="replace"))

    def checksums(self) -> dict[str, str]:
        """vLLM's own SHA-256 of every tensor that its workers still hold; that of nothing where they do not."""
        return self.http.post("/weight_checker", {"action": "checksum"}, Checksums).checksums

    def contents(self, *, whole: bool = False) -> list[RankContents]:
        """What each rank's model holds, in the trainer's terms: our worker extension tells it.

        With `whole` also the digests that `checksums` has otherwise.
        """
        order = {"method": "smokestack_contents", **({"kwargs": {"whole": True}} if whole else {})}
        return self.http.post("/collective_rpc", order, Contents).results

    def worker_versions(self) -> list[str]:
        """The label that each worker keeps, where weights do not go through the engine's routes for them."""
        return self.http.post("/collective_rpc", {"method": "smokestack_weight_version"}, WorkerVersions).results

    def workers_updating(self) -> list[bool]:
        """Whether each worker has a weight update open, in the same case."""
        return self.http.post("/collective_rpc", {"method": "smokestack_update_open"}, WorkersUpdating).results

    def destroy_weights(self, ranks: int) -> None:
        """Make every weight zero, the repacked ones included. The next refit must bring all of them."""
        obeyed = self.http.post("/collective_rpc", {"method": "smokestack_destroy"}, Obeyed)
        if len(obeyed.results) != ranks:
            raise HttpBodyError(
                "not every rank destroyed its weights",
                expected=f"exactly one null for each of {ranks} rank(s)",
                found=f"{len(obeyed.results)} of them",
                where=f"{self.http.base_url}/collective_rpc",
            )

    def first_token(self, model: str, token_ids: Sequence[int], *, cached: bool = True) -> CompletionAnswer:
        """The greedy first token after a prompt, with what of the prompt came from the cache.

        Without `cached` the prompt's log-probabilities are asked for as well: vLLM reads no cache for such a request.
        """
        body = {"model": model, "prompt": list(token_ids), "temperature": 0.0, "max_tokens": 1, "logprobs": 1}
        if not cached:
            body["prompt_logprobs"] = 0
        return self.http.post("/v1/completions", body, CompletionAnswer)

    def generate(
        self, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], *, timeout_s: float | None = None
    ) -> Generated:
        """Token ids in, token ids out. Hangs until `timeout_s` while the engine is paused."""
        body = {"model": model, "token_ids": list(token_ids), "sampling_params": dict(sampling)}
        return self.http.post("/inference/v1/generate", body, Generated, timeout_s=timeout_s)


@dataclass(frozen=True)
class SidecarControl:
    """The sidecar's system server: engine controls that it forwards over gRPC."""

    http: HttpClient

    def weight_version(self) -> str:
        return str(self.http.post("/engine/control/get_weight_version", {}, WeightVersion).weight_version)

    def is_paused(self) -> bool:
        return self.http.post("/engine/control/is_paused", {}, Paused).is_paused

    def load_adapter(self, name: str, path: str) -> None:
        """Serve the LoRA adapter in the folder `path` as a model of that name, on its engine and in discovery."""
        self.http.post(f"/engine/{LOAD_ADAPTER}", {"lora_name": name, "source": {"uri": f"file://{path}"}}, Succeeded)

    def unload_adapter(self, name: str) -> None:
        self.http.post(f"/engine/{UNLOAD_ADAPTER}", {"lora_name": name}, Succeeded)


@dataclass(frozen=True)
class FrontendClient:
    """The Dynamo frontend's public routes."""

    http: HttpClient

    def models(self) -> list[str]:
        return [entry.id for entry in self.http.get("/v1/models", ModelList).data]

    def chat(self, model: str, prompt: str, *, max_tokens: int, timeout_s: float | None = None) -> ChatCompletion:
        """One greedy chat completion with a single user message."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0.0,
        }
        answer = self.http.post("/v1/chat/completions", body, ChatAnswer, timeout_s=timeout_s)
        first = answer.choices[0]
        return ChatCompletion(
            text=first.message.content or "",
            finish_reason=first.finish_reason,
            completion_tokens=answer.usage.completion_tokens,
        )
