"""The maths task: sums and products as chat prompts, and exact rewards. Imports no torch.

A profile suits a model when it answers some right and some wrong, and is chosen by the model's folder: single-digit
sums in the tiny model's own notation; the same in words for small chat models (SmolLM2-135M, sampled at temperature 1,
answers about one in six right); products of two-digit numbers for Qwen3, for which sums are too easy (not measured).
"""

from __future__ import annotations

import json
import operator
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smokestack_payload.model import read_marker

NUMBER = re.compile(r"(?<![0-9.])-?[0-9]+(?![0-9]|\.[0-9])")


@dataclass(frozen=True)
class Problem:
    """One sum or product. `prompt` is the user's message; `answer` the number that is right."""

    prompt: str
    answer: int


@dataclass(frozen=True)
class Task:
    """A family of problems. `exact` asks for the answer and nothing else; otherwise the text's last number counts."""

    template: str
    smallest: int
    largest: int
    exact: bool
    result: Callable[[int, int], int] = operator.add

    def problem(self, left: int, right: int) -> Problem:
        return Problem(prompt=self.template.format(left=left, right=right), answer=self.result(left, right))

    def all_problems(self) -> list[Problem]:
        """Every problem of the family, in a fixed order."""
        span = range(self.smallest, self.largest + 1)
        return [self.problem(left, right) for left in span for right in span]

    def sample(self, count: int, seed: int) -> list[Problem]:
        """`count` problems, drawn without repetition where the family is large enough; the same for the same seed."""
        chooser = random.Random(seed)
        problems = self.all_problems()
        if count <= len(problems):
            return chooser.sample(problems, count)
        return chooser.choices(problems, k=count)

    def reward(self, problem: Problem, text: str) -> float:
        """1.0 for the right number, else 0.0. `text` is the completion without special tokens."""
        return 1.0 if self.parse(text) == problem.answer else 0.0

    def parse(self, text: str) -> int | None:
        """The number that the completion gives, None when it gives none."""
        if self.exact:
            return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
        numbers = NUMBER.findall(text.replace(",", ""))
        return int(numbers[-1]) if numbers else None


DIGITS = Task(template="{left}+{right}=", smallest=0, largest=9, exact=True)
WORDS = Task(template="What is {left} + {right}? Reply with the number only.", smallest=1, largest=9, exact=False)

PRODUCTS = Task(
    template="What is {left} * {right}? Reply with the number only.",
    smallest=11,
    largest=99,
    exact=False,
    result=operator.mul,
)


def task_for(model_dir: Path) -> Task:
    """The profile that suits the model in `model_dir`."""
    marker = read_marker(model_dir)
    if marker is not None and marker.get("kind") == "tiny":
        return DIGITS
    config = model_dir / "config.json"
    kind = json.loads(config.read_text(encoding="utf-8")).get("model_type") if config.is_file() else None
    return PRODUCTS if kind == "qwen3" else WORDS


def probe_problems(task: Task) -> list[Problem]:
    """Four fixed problems whose answers the harness compares between engine and trainer, version by version."""
    low, high = task.smallest, task.largest
    middle = (low + high) // 2
    return [task.problem(*pair) for pair in ((low + 3, low + 4), (middle, high), (high, low + 1), (low + 2, low + 2))]


def encode_chat(tokenizer: Any, message: str) -> list[int]:
    """Token ids of one user message in the model's chat template, with the assistant's turn opened.

    A model that would think aloud first is asked not to: its answer would lie beyond the tokens of a rollout. Templates
    that know nothing of that ignore it.
    """
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], add_generation_prompt=True, tokenize=False, enable_thinking=False
    )
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def stop_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends an answer, sorted: the generation config's and the tokenizer's."""
    configured = model.generation_config.eos_token_id
    ids = set(configured if isinstance(configured, list) else [configured]) | {tokenizer.eos_token_id}
    return sorted(token for token in ids if token is not None)
