"""A small LoRA adapter of the policy: drawn at random, written as engines load it, applied here as their reference.

It is not trained. Each layer's change is half as large as the layer's own weights, so that an engine that leaves it
out, or adds it twice, does not come near the reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from smokestack_payload.errors import ModelError
from smokestack_payload.publish import published

NAME = "smokestack-adapter"
RANK = 4
ALPHA = 8
"""vLLM multiplies the product of the two factors by `ALPHA / RANK`."""

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
STRENGTH = 0.5
"""Root mean square of a layer's change, against that of its weights."""


@dataclass(frozen=True)
class Adapter:
    """`factors` by the layer's name: A [rank, columns] and B [rows, rank], of the policy's type."""

    factors: dict[str, tuple[torch.Tensor, torch.Tensor]]

    def change(self, layer: str) -> torch.Tensor:
        """What is added to the layer's weight."""
        down, up = self.factors[layer]
        return (up @ down) * (ALPHA / RANK)


@torch.no_grad()
def drawn(model: torch.nn.Module, seed: int) -> Adapter:
    """Random factors for each layer that engines commonly adapt. Raises ModelError for a model without any."""
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for name, layer in model.named_modules():
        if name.rpartition(".")[2] in TARGETS:
            weight: Any = layer.weight
            down = torch.randn(RANK, weight.shape[1], generator=generator).to(weight.device, weight.dtype)
            up = torch.randn(weight.shape[0], RANK, generator=generator).to(weight.device, weight.dtype)
            scale = STRENGTH * _size(weight) / _size((up @ down) * (ALPHA / RANK))
            factors[name] = (down, up * scale)
    if not factors:
        raise _no_layer(model)
    return Adapter(factors)


def _no_layer(model: torch.nn.Module) -> ModelError:
    linear = {name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
    return ModelError(
        "the model has no layer that a LoRA adapter of ours is for",
        expected=f"one of {', '.join(TARGETS)}",
        found=f"linear layers {', '.join(sorted(linear))}" if linear else "no linear layer",
        hint="leave out --lora, or choose a model with such layers with --model",
    )


@contextmanager
@torch.no_grad()
def applied(model: torch.nn.Module, adapter: Adapter) -> Iterator[None]:
    """The model with the adapter added to its weights, and on leaving as it was, bit for bit."""
    weights: dict[str, Any] = {name: model.get_submodule(name).weight for name in adapter.factors}
    kept = {name: weight.detach().clone() for name, weight in weights.items()}
    for name, weight in weights.items():
        weight.add_(adapter.change(name))
    try:
        yield
    finally:
        for name, weight in weights.items():
            weight.copy_(kept[name])


def write(adapter: Adapter, folder: Path) -> None:
    """As a folder in the format of PEFT, which appears whole or not at all."""
    from safetensors.torch import save_file

    tensors = {}
    for name, (down, up) in adapter.factors.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = down.cpu().contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = up.cpu().contiguous()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": sorted({name.rpartition(".")[2] for name in adapter.factors}),
        "bias": "none",
    }
    with published(folder) as aside:
        save_file(tensors, aside / "adapter_model.safetensors")
        (aside / "adapter_config.json").write_text(json.dumps(config, sort_keys=True), encoding="utf-8")


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.float().square().mean().sqrt())
