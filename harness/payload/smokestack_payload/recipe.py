"""The tiny model's recipe: every constant that decides its bytes, and their hash. Imports no torch.

`python -m smokestack_payload.recipe` prints the hash, so that a cache folder can be named before anything is made.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

REVISION = 1
"""Raised when code (not a constant below) changes what the recipe produces."""

BYTE_VALUES = 256
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class Architecture:
    """Dimensions of the Qwen3-architecture model. The vocabulary is exactly the tokenizer's: no padding."""

    hidden_size: int = 128
    intermediate_size: int = 256
    layers: int = 2
    attention_heads: int = 4
    key_value_heads: int = 2
    head_dim: int = 32
    max_positions: int = 512
    tie_word_embeddings: bool = True


@dataclass(frozen=True)
class Warmup:
    """The supervised pass: AdamW steps over random single-digit sums until `target_accuracy` is expected.

    Accuracy is the mean probability of the right answer when sampling at temperature 1, over all problems.
    """

    batch: int = 32
    learning_rate: float = 3e-3
    target_accuracy: float = 0.5
    check_every: int = 5
    max_steps: int = 600


@dataclass(frozen=True)
class TinyRecipe:
    """Everything that the tiny model is made of."""

    seed: int = 20260
    special_tokens: tuple[str, ...] = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
    chat_template: str = CHAT_TEMPLATE
    architecture: Architecture = field(default_factory=Architecture)
    warmup: Warmup = field(default_factory=Warmup)

    @property
    def vocab_size(self) -> int:
        """One token per byte value, then the special tokens."""
        return BYTE_VALUES + len(self.special_tokens)

    def digest(self) -> str:
        """12 hex digits of the SHA-256 over all constants and the code's revision."""
        text = json.dumps({"revision": REVISION, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


TINY = TinyRecipe()

if __name__ == "__main__":
    print(json.dumps({"tiny": TINY.digest()}))  # noqa: T201 - the module's output
