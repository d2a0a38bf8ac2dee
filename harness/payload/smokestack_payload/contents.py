"""What an engine's model holds, told per trainer parameter. Runs in vLLM's workers; changes nothing.

The engine has its own names and shapes: it fuses `q_proj`, `k_proj` and `v_proj`, pads the vocabulary, and on the CPU
repacks each linear weight for oneDNN and frees the original, whose digest is then that of nothing. A repacked weight
is not lost: the layer is asked to multiply the identity matrix, by the very call that serves. Each product has one
term that is not zero, so the answer is the weight itself, bit for bit (-0.0 comes back as 0.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypedDict

import torch
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from smokestack_payload.cuts import cuts_of
from smokestack_payload.digests import digest, dtype_name, values_digest
from smokestack_payload.settings import Cut

INSIDE = "base_layer"
"""What vLLM calls a layer in the one that it puts around it, so that adapters may be added (`--enable-lora`)."""

ROWS_AT_ONCE = 512
"""Rows of the identity matrix in one product: bounds its memory for wide layers."""


class Told(TypedDict):
    """One parameter in the trainer's terms. `how` the engine has it, and so which digest can be evidence:

    `held`: a tensor of its own under this name; no digest here, vLLM's own `/weight_checker` has it.
    `whole`: the same, with the digest of its bytes, for engines without that route.
    `part`: rows of a larger tensor (fused, padded); digest of these bytes.
    `multiplied`: repacked; digest of the values that the layer multiplies by.
    `sharded`: divided over several ranks in a way that is not known here; neither shape nor digest can be told.

    `cut` is the slice that this rank has of the trainer's parameter, None for all of it; `shape` is the slice's own.
    """

    name: str
    how: str
    dtype: str
    shape: list[int] | None
    cut: dict[str, int] | None
    sha256: str | None


@torch.no_grad()
def told(model: torch.nn.Module, *, whole: bool = False) -> list[Told]:
    """Every parameter of the model, a tied one under each of its names; `whole` instead of `held` when asked for."""
    parameters = [one for prefix, layer in model.named_modules() for one in _of_layer(model, prefix, layer)]
    return [_whole(model, one) if whole and one["how"] == "held" else one for one in parameters]


def _whole(model: torch.nn.Module, held: Told) -> Told:
    """The engine's name is the trainer's here: such a parameter is neither fused nor cut."""
    return {**held, "how": "whole", "sha256": digest(model.get_parameter(held["name"]))}


def is_repacked(layer: torch.nn.Module) -> bool:
    """Whether the layer multiplies by a copy that the CPU backend packed (an embedding looks rows up instead).

    A layer that adapters are added to is not it: it speaks for the one inside.
    """
    if hasattr(layer, INSIDE):
        return False
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
        names = [f"{name}.{suffix}" for name in _names(model, prefix)]
        cuts = cuts_of(layer, suffix, len(names))
        if cuts is None:
            yield from (_unseen(name, tensor) for name in names)
            continue
        read_back = suffix == "weight" and is_repacked(layer)
        whole = multiplied(layer) if read_back else tensor
        for name, cut, part in zip(names, cuts, _parts(layer, whole, cuts), strict=True):
            own = not read_back and part.shape == tensor.shape
            how = "multiplied" if read_back else "held" if own else "part"
            sha256 = values_digest(part) if read_back else None if own else digest(part)
            yield {
                "name": name,
                "how": how,
                "dtype": dtype_name(part.dtype),
                "shape": list(part.shape),
                "cut": None if cut is None else asdict(cut),
                "sha256": sha256,
            }


def _unseen(name: str, tensor: torch.Tensor) -> Told:
    dtype = dtype_name(tensor.dtype)
    return {"name": name, "how": "sharded", "dtype": dtype, "shape": None, "cut": None, "sha256": None}


def _names(model: Any, prefix: str) -> list[str]:
    """The trainer's names for the module at `prefix`: several where the engine fuses what the trainer has apart."""
    parent, _, own = prefix.removesuffix(f".{INSIDE}").rpartition(".")
    fused: list[str] = getattr(model, "packed_modules_mapping", {}).get(own, [own])
    return [f"{parent}.{name}" if parent else name for name in fused]


def _parts(layer: Any, whole: torch.Tensor, cuts: list[Cut | None]) -> list[torch.Tensor]:
    """`whole` divided along its rows into what the trainer has; without the rows that fill a vocabulary up."""
    if isinstance(layer, VocabParallelEmbedding):
        return [whole[: layer.org_vocab_size if cuts[0] is None else cuts[0].size]]
    if len(cuts) == 1:
        return [whole]
    return list(whole.split([cut.size for cut in cuts if cut is not None] or list(layer.output_sizes)))
