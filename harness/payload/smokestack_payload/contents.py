"""What an engine's model holds, told per trainer parameter. Runs in vLLM's workers; changes nothing.

The engine has its own names and shapes: it fuses `q_proj`, `k_proj` and `v_proj`, pads the vocabulary, and on the CPU
repacks each linear weight for oneDNN and frees the original, whose digest is then that of nothing. A repacked weight
is not lost: the layer is asked to multiply the identity matrix, by the very call that serves. Each product has one
term that is not zero, so the answer is the weight itself, bit for bit (-0.0 comes back as 0.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import torch
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from smokestack_payload.digests import digest, dtype_name, values_digest

ROWS_AT_ONCE = 512
"""Rows of the identity matrix in one product: bounds its memory for wide layers."""


class Told(TypedDict):
    """One parameter in the trainer's terms. `how` the engine has it, and so which digest can be evidence:

    `held`: a tensor of its own under this name; no digest here, vLLM's own `/weight_checker` has it.
    `part`: rows of a larger tensor (fused, padded); digest of these bytes.
    `multiplied`: repacked; digest of the values that the layer multiplies by.
    `sharded`: a slice over several ranks; neither shape nor digest can be told by one of them.
    """

    name: str
    how: str
    dtype: str
    shape: list[int] | None
    sha256: str | None


@torch.no_grad()
def told(model: torch.nn.Module) -> list[Told]:
    """Every parameter of the model, a tied one under each of its names."""
    return [one for prefix, layer in model.named_modules() for one in _of_layer(model, prefix, layer)]


def is_repacked(layer: torch.nn.Module) -> bool:
    """Whether the layer multiplies by a copy that the CPU backend packed (an embedding looks rows up instead)."""
    looks_up = isinstance(layer, VocabParallelEmbedding) and not isinstance(layer, ParallelLMHead)
    return hasattr(layer, "cpu_linear") and not looks_up


def width(layer: Any) -> int:
    """How many columns a linear layer's weight has, whether it is still there or not."""
    return int(layer.embedding_dim if isinstance(layer, VocabParallelEmbedding) else layer.input_size_per_partition)


def multiplied(layer: Any) -> torch.Tensor:
    """The weight [rows, columns] that the layer multiplies by, read back through the call that serves."""
    columns = width(layer)
    read = []
    for start in range(0, columns, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, columns - start)
        unit = torch.zeros(count, columns, dtype=layer.weight.dtype)
        unit[torch.arange(count), torch.arange(start, start + count)] = 1
        read.append(layer.quant_method.apply(layer, unit, None).t())
    return torch.cat(read, dim=1)


def _of_layer(model: torch.nn.Module, prefix: str, layer: torch.nn.Module) -> Iterator[Told]:
    for suffix, tensor in layer.named_parameters(recurse=False):
        if getattr(layer, "tp_size", 1) > 1:
            for name in _names(model, prefix):
                yield _told(f"{name}.{suffix}", "sharded", tensor, None, None)
        elif suffix == "weight" and is_repacked(layer):
            for name, part in _parts(model, prefix, layer, multiplied(layer)):
                yield _told(f"{name}.{suffix}", "multiplied", part, part, values_digest(part))
        else:
            for name, part in _parts(model, prefix, layer, tensor):
                own = part.shape == tensor.shape
                yield _told(f"{name}.{suffix}", "held" if own else "part", part, part, None if own else digest(part))


def _told(name: str, how: str, typed: torch.Tensor, shaped: torch.Tensor | None, sha256: str | None) -> Told:
    shape = None if shaped is None else list(shaped.shape)
    return {"name": name, "how": how, "dtype": dtype_name(typed.dtype), "shape": shape, "sha256": sha256}


def _names(model: Any, prefix: str) -> list[str]:
    """The trainer's names for the module at `prefix`: several where the engine fuses what the trainer has apart."""
    parent, _, own = prefix.rpartition(".")
    fused: list[str] = getattr(model, "packed_modules_mapping", {}).get(own, [own])
    return [f"{parent}.{name}" if parent else name for name in fused]


def _parts(model: torch.nn.Module, prefix: str, layer: Any, whole: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """`whole` cut along its rows into what the trainer has; without the rows that fill a vocabulary up."""
    names = _names(model, prefix)
    if isinstance(layer, VocabParallelEmbedding):
        yield names[0], whole[: layer.org_vocab_size]
    elif len(names) == 1:
        yield names[0], whole
    else:
        yield from zip(names, whole.split(list(layer.output_sizes)), strict=True)
