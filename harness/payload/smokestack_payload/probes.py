"""The trainer's own answers to the fixed probe prompts: what an engine with the same weights must say too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

Probe = dict[str, list[int] | list[float]]


@torch.no_grad()
def probe(model: Any, prompt_ids: Sequence[int], new_tokens: int, stop_ids: Collection[int]) -> Probe:
    """Greedy continuation of `prompt_ids`, and every log-probability on the way (natural log, temperature 1).

    `token_ids`: at most `new_tokens`, ending with the first stop token; `logprobs`: theirs. `prompt_logprobs`:
    len(prompt) - 1 values, each prompt token given those before it. `margins`: how far each greedy token was ahead of
    the runner-up; below the float noise, another program may rightly choose the other one.
    """
    device = model.device
    output = model(input_ids=torch.tensor([list(prompt_ids)], device=device), use_cache=True)
    scores = torch.log_softmax(output.logits[0].float(), dim=-1)
    following = torch.tensor(list(prompt_ids[1:]), device=device).unsqueeze(-1)
    prompt_logprobs = scores[:-1].gather(-1, following).squeeze(-1).tolist()
    token_ids: list[int] = []
    logprobs: list[float] = []
    margins: list[float] = []
    while True:
        best = torch.topk(scores[-1], 2)
        token_ids.append(int(best.indices[0]))
        logprobs.append(float(best.values[0]))
        margins.append(float(best.values[0] - best.values[1]))
        if len(token_ids) == new_tokens or token_ids[-1] in stop_ids:
            break
        step = torch.tensor([token_ids[-1:]], device=device)
        output = model(input_ids=step, past_key_values=output.past_key_values, use_cache=True)
        scores = torch.log_softmax(output.logits[0].float(), dim=-1)
    return {
        "prompt_ids": list(prompt_ids),
        "token_ids": token_ids,
        "logprobs": logprobs,
        "margins": margins,
        "prompt_logprobs": prompt_logprobs,
    }
