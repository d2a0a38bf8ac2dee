"""Which slice of a trainer's parameter one rank of a tensor-parallel engine has.

The answer comes from the numbers by which the layer itself loads: its rank, its sizes, its part of the vocabulary.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from smokestack_payload.settings import Cut


def cuts_of(layer: Any, suffix: str, parts: int) -> list[Cut | None] | None:
    """For each of the trainer's `parts` that the layer's tensor holds, in order, its slice; a None is all of it.

    None instead of the list where the layer is sharded in a way that is not known here (experts).
    """
    if getattr(layer, "tp_size", 1) == 1 or isinstance(layer, ReplicatedLinear):
        return [None] * parts
    found = _known_cuts(layer, suffix)
    return found if found is not None and len(found) == parts else None


def _known_cuts(layer: Any, suffix: str) -> list[Cut | None] | None:
    if isinstance(layer, VocabParallelEmbedding):
        own = layer.shard_indices
        return [Cut(0, own.org_vocab_start_index, own.org_vocab_end_index)]
    if isinstance(layer, RowParallelLinear):
        return [_nth(1, layer.tp_rank, layer.input_size_per_partition) if suffix == "weight" else None]
    if isinstance(layer, QKVParallelLinear):
        # With fewer key and value heads than ranks, several ranks have the same one.
        shared = layer.tp_rank // layer.num_kv_head_replicas
        return [
            _nth(0, layer.tp_rank, layer.num_heads * layer.head_size),
            _nth(0, shared, layer.num_kv_heads * layer.head_size),
            _nth(0, shared, layer.num_kv_heads * layer.v_head_size),
        ]
    if isinstance(layer, ColumnParallelLinear):
        return [_nth(0, layer.tp_rank, size) for size in layer.output_partition_sizes]
    return None


def _nth(dim: int, place: int, size: int) -> Cut:
    return Cut(dim, place * size, (place + 1) * size)
