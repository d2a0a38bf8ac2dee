"""Rollouts through the frontend: token ids in, token ids and the sampled tokens' log-probabilities out.

The requests of a step run side by side (the route takes no `n`). A request that fails is counted, not repeated: a
retry could hide a stack that answers only sometimes. Imports no torch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from smokestack_payload.errors import RolloutError
from smokestack_payload.tasks import Problem

ROUTE = "/inference/v1/generate"
TOLERATED_ERRORS = 0.25
"""Share of a step's requests that may fail before the step itself does. The verdict still counts each one."""

OPEN_PROMPT_TOKENS = 1024
"""Prompt tokens that may be under way at once. A step of vLLM takes 2048 by default; a prompt that it must split kills
its CPU engine when the request has a seed ("CPU Generator does not use offset", vLLM 0.32.0)."""


@dataclass(frozen=True)
class Prompt:
    """A problem with its token ids."""

    problem: Problem
    ids: list[int]


@dataclass(frozen=True)
class Rollout:
    """One sampled answer. `logprobs` are the engine's, one for each of `token_ids` (the stop token included)."""

    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class RolloutBatch:
    """For each prompt its rollouts, in order; a failed request leaves None. `errors` counts failures by reason."""

    groups: list[list[Rollout | None]]
    errors: Mapping[str, int]

    @property
    def errored(self) -> int:
        return sum(self.errors.values())


@dataclass(frozen=True)
class Sampler:
    """Where and how to sample. `request_s` bounds one request, `total_s` all requests of a step."""

    frontend_url: str
    model: str
    vocab_size: int
    max_new_tokens: int
    stop_token_ids: Sequence[int]
    request_s: float
    total_s: float

    def sample(self, prompts: Sequence[Prompt], group_size: int, seed: int) -> RolloutBatch:
        """`group_size` rollouts for each prompt. Raises RolloutError when too many requests fail, or time runs out."""
        outcomes = asyncio.run(self._gather(prompts, group_size, seed))
        errors = Counter(outcome for outcome in outcomes if isinstance(outcome, str))
        if errors.total() > TOLERATED_ERRORS * len(outcomes):
            raise RolloutError(
                f"{errors.total()} of {len(outcomes)} rollouts failed",
                expected=f"at most {TOLERATED_ERRORS:.0%}",
                found="; ".join(f"{count} x {reason}" for reason, count in errors.most_common(5)),
                where=self.frontend_url + ROUTE,
                hint="see the frontend's and the engine's log",
            )
        rollouts = [outcome if isinstance(outcome, Rollout) else None for outcome in outcomes]
        groups = [rollouts[start : start + group_size] for start in range(0, len(rollouts), group_size)]
        return RolloutBatch(groups=groups, errors=errors)

    async def _gather(self, prompts: Sequence[Prompt], group_size: int, seed: int) -> list[Rollout | str]:
        longest = max(len(prompt.ids) for prompt in prompts)
        gate = asyncio.Semaphore(max(1, OPEN_PROMPT_TOKENS // longest))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(timeout=self.request_s, limits=limits, trust_env=False) as client:
            requests = [
                self._one(client, gate, prompt.ids, seed + index * group_size + sample)
                for index, prompt in enumerate(prompts)
                for sample in range(group_size)
            ]
            try:
                async with asyncio.timeout(self.total_s):
                    return await asyncio.gather(*requests)
            except TimeoutError:
                raise RolloutError(
                    "the rollouts did not end in time",
                    expected=f"{len(requests)} answers within {self.total_s:g} s",
                    found="some still open",
                    where=self.frontend_url + ROUTE,
                    hint="a paused engine answers /health and never a generation: see GET /is_paused",
                ) from None

    async def _one(
        self, client: httpx.AsyncClient, gate: asyncio.Semaphore, prompt_ids: list[int], seed: int
    ) -> Rollout | str:
        """A rollout, or the reason why there is none."""
        try:
            async with gate:
                answer = await client.post(self.frontend_url + ROUTE, json=self._body(prompt_ids, seed))
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        if not answer.is_success:
            return f"status {answer.status_code}: {answer.text[:300]}"
        try:
            return parse_rollout(answer.json())
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return f"answer not understood ({type(error).__name__}: {error}): {answer.text[:300]}"

    def _body(self, prompt_ids: list[int], seed: int) -> dict[str, Any]:
        """Sample the policy as it is: every default that a model's generation config could change is set.

        Keeping the whole vocabulary is the neutral `top_k` here: Dynamo's protocol refuses 0 and -1 (and `min_p` 0).
        """
        sampling = {
            "max_tokens": self.max_new_tokens,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": self.vocab_size,
            "repetition_penalty": 1.0,
            "logprobs": 1,
            "seed": seed,
            "stop_token_ids": list(self.stop_token_ids),
        }
        return {"model": self.model, "token_ids": prompt_ids, "sampling_params": sampling}


def parse_rollout(answer: Any) -> Rollout:
    """The first choice's tokens and their own log-probabilities.

    Each position's `logprob` is the sampled token's; the alternatives beside it may be one more than asked for, and
    are not read. Raises ValueError when tokens and log-probabilities do not pair up.
    """
    choice = answer["choices"][0]
    token_ids = [int(token) for token in choice["token_ids"]]
    logprobs = [float(entry["logprob"]) for entry in choice["logprobs"]["content"]]
    if not token_ids or len(token_ids) != len(logprobs):
        raise ValueError(f"{len(token_ids)} tokens with {len(logprobs)} log-probabilities")
    return Rollout(token_ids=token_ids, logprobs=logprobs)
