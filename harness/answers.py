"""What the servers of the stack answer: the fields that this project reads. Shapes: vLLM 0.32 and Dynamo 1.6.

A value of another type is not bent into the right one: `true` is no version 1, and a number that cannot be is none.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(strict=True, ge=0, lt=2**40)]
Tokens = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Logprob = Annotated[float, Field(le=1e-3, allow_inf_nan=False)]
"""A log-probability is at most 0; rounding may lift it a little above."""


class Served(BaseModel):
    """Fields that this project reads; servers may send more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TokenLogprob(Served):
    """Log-probability of one token, natural logarithm. Rank 1 is the most likely token."""

    logprob: Logprob
    rank: int | None = None


class ContentLogprobs(Served):
    content: list[TokenLogprob]


class WeightVersionSpan(Served):
    """Tokens `start` to `end` (exclusive) of one output come from the weights labelled `version`."""

    version: str
    start: Tokens
    end: Tokens


class GeneratedChoice(Served):
    """One generated sequence: token ids, and the log-probability of each. A frontend tells no `weight_versions`."""

    token_ids: list[TokenId]
    finish_reason: str | None = None
    weight_versions: list[WeightVersionSpan] | None = None
    logprobs: ContentLogprobs | None = None

    def token_logprobs(self) -> list[float]:
        return [] if self.logprobs is None else [entry.logprob for entry in self.logprobs.content]


class Generated(Served):
    """Answer of `/inference/v1/generate`. `prompt_logprobs[0]` is null: nothing comes before the first token."""

    choices: list[GeneratedChoice] = Field(min_length=1)
    prompt_logprobs: list[dict[str, TokenLogprob] | None] | None = None


class ChatCompletion(Served):
    """Answer of `/v1/chat/completions`, flattened to what a check needs."""

    text: str
    finish_reason: str | None
    completion_tokens: int


class ChatMessage(Served):
    content: str | None = None


class ChatChoice(Served):
    message: ChatMessage
    finish_reason: str | None = None


class ChatUsage(Served):
    completion_tokens: Tokens


class ChatAnswer(Served):
    choices: list[ChatChoice] = Field(min_length=1)
    usage: ChatUsage


class CompletionLogprobs(Served):
    token_logprobs: list[Logprob] = Field(min_length=1)


class CompletionChoice(Served):
    logprobs: CompletionLogprobs


class PromptTokensDetails(Served):
    cached_tokens: Tokens = 0


class CompletionUsage(Served):
    """`prompt_tokens_details` is null where nothing came from the cache, and where the engine does not count it."""

    prompt_tokens: Tokens
    prompt_tokens_details: PromptTokensDetails | None = None


class CompletionAnswer(Served):
    """Answer of `/v1/completions` that was asked for log-probabilities."""

    choices: list[CompletionChoice] = Field(min_length=1)
    usage: CompletionUsage

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were taken from the prefix cache."""
        details = self.usage.prompt_tokens_details
        return 0 if details is None else details.cached_tokens

    @property
    def first_logprob(self) -> float:
        return self.choices[0].logprobs.token_logprobs[0]


class TextChoice(Served):
    text: str = ""
    finish_reason: str | None = None


class TextUsage(Served):
    completion_tokens: Tokens


class TextPart(Served):
    """One event of a streamed `/v1/completions`; the last one has the usage and no choice."""

    choices: list[TextChoice] = Field(default_factory=list)
    usage: TextUsage | None = None


class ModelEntry(Served):
    id: str


class ModelList(Served):
    data: list[ModelEntry]


class WeightVersion(Served):
    weight_version: Annotated[str, Field(strict=True, max_length=256)] | Annotated[int, Field(strict=True)]


class Paused(Served):
    is_paused: Annotated[bool, Field(strict=True)]


class WorldSize(Served):
    world_size: Annotated[int, Field(strict=True, ge=1, le=2**16)]


class Checksums(Served):
    """Answer of `/weight_checker`: SHA-256 by the rank's prefix and the engine's own name."""

    checksums: dict[str, Digest]


class ToldCut(Served):
    dim: Annotated[int, Field(strict=True, ge=0, le=8)]
    start: Size
    stop: Size


class ToldParameter(Served):
    """See `smokestack_payload.contents`."""

    name: str
    how: Literal["held", "whole", "part", "multiplied", "sharded"]
    dtype: str
    shape: list[Size] | None
    cut: ToldCut | None = None
    sha256: Digest | None


class RankContents(Served):
    """What one rank's model holds; `prefix` is what `/weight_checker` puts before its names."""

    prefix: str
    parameters: list[ToldParameter]


class WorkerVersions(Served):
    """Answer of `/collective_rpc` to `smokestack_weight_version`: one for each rank."""

    results: list[Annotated[str, Field(strict=True, max_length=256)]] = Field(min_length=1)


class WorkersUpdating(Served):
    """Answer of `/collective_rpc` to `smokestack_update_open`: one for each rank."""

    results: list[Annotated[bool, Field(strict=True)]] = Field(min_length=1)


class Obeyed(Served):
    """Answer of `/collective_rpc` to an order: exactly one null for each rank."""

    results: list[None] = Field(min_length=1)


class Contents(Served):
    """Answer of `/collective_rpc` to `smokestack_contents`: one for each rank."""

    results: list[RankContents] = Field(min_length=1)


class Succeeded(Served):
    """A sidecar's answer to an order that it has carried out."""

    status: Literal["success"]
