"""Teaching the tiny model single-digit addition, up to about half of the answers right.

GRPO learns from groups that hold right and wrong answers; an untrained model gives wrong ones only. The pass stops by
an exact measure (the probability of the right answer, over all problems), so it does not depend on how fast or how
exactly this machine adds floats.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from smokestack_payload import model as models
from smokestack_payload.publish import published
from smokestack_payload.recipe import TINY, TinyRecipe
from smokestack_payload.tasks import DIGITS, encode_chat, stop_token_ids

IGNORED = -100
"""Label of positions that carry no loss (cross entropy's default)."""


@dataclass(frozen=True)
class WarmupResult:
    """The warm model (on the CPU), its tokenizer, and what it took; `steps` is 0 when it came from the cache."""

    model: Any
    tokenizer: Any
    cached: bool
    steps: int
    seconds: float
    accuracy: float | None


def warmed(base: Path, cache: Path, recipe: TinyRecipe = TINY) -> WarmupResult:
    """The warm model of `recipe`: loaded from `cache`, or trained from `base` and published there."""
    begun = time.monotonic()
    marker = {"kind": "tiny", "recipe": recipe.digest(), "warm": True}
    if models.read_marker(cache) == marker:
        model, tokenizer = models.load(cache, "cpu")
        return WarmupResult(model, tokenizer, True, 0, time.monotonic() - begun, None)
    model, tokenizer = models.load(base, "cpu")
    steps, accuracy = teach(model, tokenizer, recipe)
    with published(cache) as folder:
        models.save(model, tokenizer, folder, marker)
    return WarmupResult(model, tokenizer, False, steps, time.monotonic() - begun, accuracy)


def teach(model: Any, tokenizer: Any, recipe: TinyRecipe) -> tuple[int, float]:
    """Train in place until the expected accuracy is reached. Returns optimizer steps and that accuracy.

    Raises RuntimeError when `max_steps` do not suffice: a recipe that cannot be learnt is a fault, not a slow day.
    """
    plan = recipe.warmup
    inputs, labels = _examples(model, tokenizer)
    chooser = random.Random(recipe.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=0.0)
    accuracy = 0.0
    for step in range(1, plan.max_steps + 1):
        rows = torch.tensor(chooser.sample(range(len(inputs)), plan.batch))
        loss = model(input_ids=inputs[rows], labels=labels[rows]).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % plan.check_every == 0:
            accuracy = expected_accuracy(model, inputs, labels)
            if accuracy >= plan.target_accuracy:
                return step, accuracy
    raise RuntimeError(f"warm-up: accuracy {accuracy:.2f} after {plan.max_steps} steps, {plan.target_accuracy} wanted")


def _examples(model: Any, tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """All problems with their answers: ids and labels, both [problems, length], padded on the right."""
    stop = stop_token_ids(model, tokenizer)[0]
    rows: list[tuple[list[int], list[int]]] = []
    for problem in DIGITS.all_problems():
        prompt = encode_chat(tokenizer, problem.prompt)
        answer = [*tokenizer(str(problem.answer), add_special_tokens=False)["input_ids"], stop]
        rows.append((prompt + answer, [IGNORED] * len(prompt) + answer))
    length = max(len(ids) for ids, _ in rows)
    inputs = torch.full((len(rows), length), tokenizer.pad_token_id)
    labels = torch.full((len(rows), length), IGNORED)
    for index, (ids, wanted) in enumerate(rows):
        inputs[index, : len(ids)] = torch.tensor(ids)
        labels[index, : len(wanted)] = torch.tensor(wanted)
    return inputs, labels


@torch.no_grad()
def expected_accuracy(model: Any, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Mean probability of the whole right answer when sampling at temperature 1.

    Right-padding needs no attention mask here: attention is causal, and padded positions have no label.
    """
    logits = model(input_ids=inputs).logits[:, :-1].float()
    wanted = labels[:, 1:]
    counted = wanted != IGNORED
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, wanted.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return float((chosen * counted).sum(dim=1).exp().mean())
