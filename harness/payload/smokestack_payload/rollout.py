"""Rollouts through the frontend: token ids in, token ids and the sampled tokens' log-probabilities out.

The requests of a step run side by side (the route takes no `n`). A request that fails is counted, not repeated: a
retry could hide a stack that answers only sometimes. Imports no torch.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from smokestack_payload.calls import CLIENT_OPTIONS, MAX_BODY_BYTES, Carried, says_error
from smokestack_payload.errors import RolloutError
from smokestack_payload.strictjson import decode
from smokestack_payload.tasks import Problem

ROUTE = "/inference/v1/generate"
TOLERATED_ERRORS = 0.25
"""Share of a step's requests that may fail before the step itself does. The verdict still counts each one."""

REASON_SHOWN = 300
"""Characters of a server's text in the reason of a failed request."""

LARGEST_LOGPROB = 1e6
"""Beyond any log-probability of a float32."""

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
    """One sampled answer. `logprobs` are the engine's, one for each of `token_ids` (the stop token included).

    `seconds` is from its request, once it was its turn, to the whole answer.
    """

    token_ids: list[int]
    logprobs: list[float]
    seconds: float = field(default=0.0, compare=False)


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
    carried: Carried = field(default_factory=Carried)

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
        headers = self.carried.all()
        async with httpx.AsyncClient(
            timeout=self.request_s, limits=limits, headers=headers, **CLIENT_OPTIONS
        ) as client:
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
            async with gate, asyncio.timeout(self.request_s):
                begun = time.monotonic()
                status, content = await self._read(client, self._body(prompt_ids, seed))
                seconds = time.monotonic() - begun
        except TimeoutError:
            return f"ReadTimeout: no whole answer within {self.request_s:g} s"
        except httpx.HTTPError as error:
            return self.carried.shown(f"{type(error).__name__}: {error}", REASON_SHOWN)
        shown = self.carried.shown(content, REASON_SHOWN)
        if not 200 <= status < 300:
            return f"status {status}: {shown}{self.carried.refusal(status)}"
        try:
            return replace(parse_rollout(decode(content), self.vocab_size), seconds=seconds)
        except ValueError as error:
            return f"answer not understood ({self.carried.shown(str(error), REASON_SHOWN)}): {shown}"

    async def _read(self, client: httpx.AsyncClient, body: Mapping[str, Any]) -> tuple[int, bytes]:
        content = bytearray()
        async with client.stream("POST", self.frontend_url + ROUTE, json=body) as answer:
            async for chunk in answer.aiter_raw():
                content += chunk
                if len(content) > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"an answer of more than {MAX_BODY_BYTES} bytes")
            return answer.status_code, bytes(content)

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


def parse_rollout(answer: Any, vocab_size: int) -> Rollout:
    """The first choice's tokens and their own log-probabilities.

    Each position's `logprob` is the sampled token's; the alternatives beside it may be one more than asked for, and
    are not read. Raises ValueError for anything else, such as an id that the vocabulary does not have.
    """
    if says_error(answer):
        raise ValueError("it says that it is an error")
    try:
        choice = answer["choices"][0]
        token_ids, entries = choice["token_ids"], choice["logprobs"]["content"]
        logprobs = [entry["logprob"] for entry in entries]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not isinstance(token_ids, list) or not all(_is_token(token, vocab_size) for token in token_ids):
        raise ValueError(f"token ids that are no whole numbers from 0 to {vocab_size - 1}")
    if not all(_is_logprob(value) for value in logprobs):
        raise ValueError("a log-probability that is no number up to 0")
    if not token_ids or len(token_ids) != len(logprobs):
        raise ValueError(f"{len(token_ids)} tokens with {len(logprobs)} log-probabilities")
    return Rollout(token_ids=token_ids, logprobs=[float(value) for value in logprobs])


def _is_token(value: Any, vocab_size: int) -> bool:
    return type(value) is int and 0 <= value < vocab_size


def _is_logprob(value: Any) -> bool:
    """Rounding may lift a certain token's a little above 0."""
    if type(value) is int:
        return -LARGEST_LOGPROB <= value <= 0
    return type(value) is float and math.isfinite(value) and -LARGEST_LOGPROB <= value <= 1e-3
