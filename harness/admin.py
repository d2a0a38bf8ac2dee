"""Typed clients of what the stack serves over HTTP: the engine's admin routes, the sidecar's controls, the frontend.

The admin routes ask for no key of their own; every call carries what the run was given. How a call is made, and what
counts as its answer, is in `calling`. Shapes: vLLM 0.32 (development mode) and Dynamo 1.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.answers import (
    ChatAnswer,
    ChatCompletion,
    Checksums,
    CompletionAnswer,
    Contents,
    Generated,
    GeneratedChoice,
    ModelList,
    Obeyed,
    Paused,
    RankContents,
    Succeeded,
    TextPart,
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

COMPLETIONS, GENERATE = "/v1/completions", "/inference/v1/generate"


class Progress:
    """Of an answer that is read as it comes: how many pieces of it there are."""

    def __init__(self) -> None:
        self.pieces = 0

    def counted(self, events: Iterator[bytes]) -> list[bytes]:
        """All of them, to be read when the last is there: that takes longer than a small model generates them."""
        found: list[bytes] = []
        for data in events:
            found.append(data)
            self.pieces += 1
        return found


@dataclass(frozen=True)
class StreamedText:
    """How many tokens a streamed answer had, and why it ended."""

    tokens: int
    finish_reason: str | None


@dataclass(frozen=True)
class EngineAdmin:
    """The engine's own HTTP server, with vLLM's development-mode routes."""

    http: HttpClient

    def is_paused(self) -> bool:
        return self.http.get("/is_paused", Paused).is_paused

    def hold(self) -> None:
        """Let everything stand still where it is, with its cache: a later pause decides what becomes of it."""
        self.http.order("/pause?mode=keep&clear_cache=false")

    def resume(self) -> None:
        self.http.order("/resume")

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
        return self.http.post(COMPLETIONS, body, CompletionAnswer)

    def generate(
        self, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], *, timeout_s: float | None = None
    ) -> Generated:
        """Token ids in, token ids out. Hangs until `timeout_s` while the engine is paused."""
        body = {"model": model, "token_ids": list(token_ids), "sampling_params": dict(sampling)}
        return self.http.post(GENERATE, body, Generated, timeout_s=timeout_s)

    def generate_streamed(
        self, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], progress: Progress
    ) -> GeneratedChoice:
        """The same, read as it comes; without log-probabilities."""
        body = {"model": model, "token_ids": list(token_ids), "sampling_params": dict(sampling), "stream": True}
        events = progress.counted(self.http.events(GENERATE, body))
        parts = [self.http.parse(GENERATE, Generated, data).choices[0] for data in events]
        return GeneratedChoice(
            token_ids=[token for part in parts for token in part.token_ids],
            finish_reason=next((part.finish_reason for part in reversed(parts) if part.finish_reason), None),
            weight_versions=next((part.weight_versions for part in reversed(parts) if part.weight_versions), None),
        )


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

    def complete_streamed(
        self, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], progress: Progress
    ) -> StreamedText:
        """Text for a prompt of token ids, read as it comes."""
        body = {"model": model, "prompt": list(token_ids), **sampling}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        events = progress.counted(self.http.events(COMPLETIONS, body))
        parts = [self.http.parse(COMPLETIONS, TextPart, data) for data in events]
        endings = [choice.finish_reason for part in parts for choice in part.choices if choice.finish_reason]
        return StreamedText(
            tokens=max((part.usage.completion_tokens for part in parts if part.usage is not None), default=0),
            finish_reason=endings[-1] if endings else None,
        )
