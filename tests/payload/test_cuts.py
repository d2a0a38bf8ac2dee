"""What the ranks of a tensor-parallel engine tell: slices, with the digests of the same slices of the trainer's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from smokestack_payload.contents import Told, told
from smokestack_payload.digests import digest, values_digest
from smokestack_payload.held import digests
from smokestack_payload.settings import Cut, Slice
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
)
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding

WIDE, HEAD, RANKS, VOCABULARY = 32, 8, 2, 59
SHAPES = {
    "q_proj.weight": (32, WIDE),
    "k_proj.weight": (16, WIDE),
    "v_proj.weight": (16, WIDE),
    "gate_proj.weight": (48, WIDE),
    "up_proj.weight": (48, WIDE),
    "down_proj.weight": (WIDE, 48),
    "up.weight": (24, WIDE),
    "router.weight": (4, WIDE),
    "embed_tokens.weight": (VOCABULARY, WIDE),
    "norm.weight": (WIDE,),
}


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {name: torch.randn(shape) for name, shape in SHAPES.items()}


def linear(kind: Any, rank: int, weight: torch.Tensor, **numbers: Any) -> Any:
    """A layer of vLLM's as its CPU backend leaves it, with this rank's part of the weight."""
    layer = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    layer.tp_rank, layer.tp_size, layer.input_size_per_partition = rank, RANKS, weight.shape[1]
    for name, value in numbers.items():
        setattr(layer, name, value)
    layer.weight = torch.nn.Parameter(weight.clone().contiguous(), requires_grad=False)
    layer.quant_method = UnquantizedLinearMethod()
    layer.quant_method.process_weights_after_loading(layer)
    return layer


class RankModel(torch.nn.Module):
    """What one of two ranks holds of the weights; `kv_heads` 1 is shared by both."""

    packed_modules_mapping: ClassVar = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, weights: dict[str, torch.Tensor], rank: int, kv_heads: int = 2) -> None:
        super().__init__()
        q, k, v = (weights[f"{name}_proj.weight"] for name in "qkv")
        shared = rank if kv_heads == RANKS else 0
        own = kv_heads * HEAD if kv_heads == 1 else HEAD
        self.qkv_proj = linear(
            QKVParallelLinear,
            rank,
            torch.cat([nth(q, rank), k[shared * own : (shared + 1) * own], v[shared * own : (shared + 1) * own]]),
            num_heads=2,
            num_kv_heads=1,
            head_size=HEAD,
            v_head_size=HEAD,
            num_kv_head_replicas=RANKS // kv_heads,
        )
        gate, up = weights["gate_proj.weight"], weights["up_proj.weight"]
        merged = torch.cat([nth(gate, rank), nth(up, rank)])
        self.gate_up_proj = linear(MergedColumnParallelLinear, rank, merged, output_partition_sizes=[24, 24])
        self.down_proj = linear(RowParallelLinear, rank, nth(weights["down_proj.weight"], rank, dim=1))
        self.down_proj.bias = torch.nn.Parameter(torch.ones(WIDE), requires_grad=False)
        self.up = linear(ColumnParallelLinear, rank, nth(weights["up.weight"], rank), output_partition_sizes=[12])
        self.router = linear(ReplicatedLinear, rank, weights["router.weight"])
        self.embed_tokens = vocabulary(weights["embed_tokens.weight"], rank)
        self.norm = torch.nn.RMSNorm(WIDE)
        self.norm.weight.data.copy_(weights["norm.weight"])


def nth(whole: torch.Tensor, rank: int, dim: int = 0) -> torch.Tensor:
    return whole.chunk(RANKS, dim)[rank]


def vocabulary(whole: torch.Tensor, rank: int) -> Any:
    """59 tokens, filled up to 64, of which each rank has 32: the last one has 27 that are tokens."""
    layer = VocabParallelEmbedding.__new__(VocabParallelEmbedding)
    torch.nn.Module.__init__(layer)
    start, stop = rank * 32, min((rank + 1) * 32, VOCABULARY)
    layer.org_vocab_size, layer.embedding_dim, layer.tp_size = VOCABULARY, WIDE, RANKS
    layer.shard_indices = SimpleNamespace(org_vocab_start_index=start, org_vocab_end_index=stop)
    padded = torch.cat([whole[start:stop], torch.zeros(32 - (stop - start), WIDE)])
    layer.weight = torch.nn.Parameter(padded, requires_grad=False)
    layer.quant_method = UnquantizedEmbeddingMethod()
    return layer


def by_name(weights: dict[str, torch.Tensor], rank: int, **options: Any) -> dict[str, Told]:
    return {one["name"]: one for one in told(RankModel(weights, rank, **options))}


def trainer(weights: dict[str, torch.Tensor]) -> Any:
    """The trainer's model, as far as it has the names."""
    model = torch.nn.Module()
    for name, value in weights.items():
        layer = torch.nn.Module()
        layer.register_parameter("weight", torch.nn.Parameter(value.clone()))
        model.add_module(name.removesuffix(".weight"), layer)
    return model


def expected(weights: dict[str, torch.Tensor], parameter: Told) -> str:
    """The trainer's digest of what the rank says it has."""
    cut = parameter["cut"]
    slices = [] if cut is None else [Slice(parameter["name"], Cut(**cut))]
    key = "values_sha256" if parameter["how"] == "multiplied" else "sha256"
    found = [
        one[key]
        for one in digests(trainer(weights), slices)
        if (one["name"], one.get("cut")) == (parameter["name"], cut)
    ]
    assert len(found) == 1
    return str(found[0])


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_tells_its_slice_and_the_digest_is_that_of_the_trainers_slice(
    rank: int, weights: dict[str, torch.Tensor]
) -> None:
    named = by_name(weights, rank)
    assert named.keys() == weights.keys() | {"down_proj.bias"}
    assert {name for name in named if named[name]["how"] == "held"} == {
        "down_proj.bias",
        "norm.weight",
        *(() if rank else ("embed_tokens.weight",)),
    }
    for name in weights:
        if named[name]["how"] != "held":
            assert named[name]["sha256"] == expected(weights, named[name]), name
    assert {name: one["cut"] for name, one in named.items()} == {
        "q_proj.weight": {"dim": 0, "start": 16 * rank, "stop": 16 * rank + 16},
        "k_proj.weight": {"dim": 0, "start": 8 * rank, "stop": 8 * rank + 8},
        "v_proj.weight": {"dim": 0, "start": 8 * rank, "stop": 8 * rank + 8},
        "gate_proj.weight": {"dim": 0, "start": 24 * rank, "stop": 24 * rank + 24},
        "up_proj.weight": {"dim": 0, "start": 24 * rank, "stop": 24 * rank + 24},
        "down_proj.weight": {"dim": 1, "start": 24 * rank, "stop": 24 * rank + 24},
        "down_proj.bias": None,
        "up.weight": {"dim": 0, "start": 12 * rank, "stop": 12 * rank + 12},
        "router.weight": None,
        "embed_tokens.weight": {"dim": 0, "start": 32 * rank, "stop": (32, 59)[rank]},
        "norm.weight": None,
    }
    assert named["down_proj.weight"]["shape"] == [WIDE, 24]


def test_ranks_that_share_a_head_tell_the_same_rows(weights: dict[str, torch.Tensor]) -> None:
    weights |= {"k_proj.weight": torch.randn(8, WIDE), "v_proj.weight": torch.randn(8, WIDE)}
    for rank in range(RANKS):
        named = by_name(weights, rank, kv_heads=1)
        assert named["k_proj.weight"]["cut"] == {"dim": 0, "start": 0, "stop": 8}
        assert named["v_proj.weight"]["sha256"] == expected(weights, named["v_proj.weight"])


@pytest.mark.parametrize(
    ("name", "place", "rank"),
    [
        ("q_proj.weight", (3, 5), 0),
        ("k_proj.weight", (9, 5), 1),
        ("gate_proj.weight", (40, 0), 1),
        ("down_proj.weight", (0, 23), 0),
        ("down_proj.weight", (0, 24), 1),
    ],
)
def test_one_flipped_bit_shows_on_exactly_the_rank_that_has_it(
    name: str, place: tuple[int, int], rank: int, weights: dict[str, torch.Tensor]
) -> None:
    before = [by_name(weights, one) for one in range(RANKS)]
    weights[name].view(torch.int32)[place] ^= 1
    after = [by_name(weights, one) for one in range(RANKS)]
    changed = [
        (one, other)
        for one in range(RANKS)
        for other in before[one]
        if before[one][other]["sha256"] != after[one][other]["sha256"]
    ]
    assert changed == [(rank, name)]


def test_a_rank_that_was_given_the_other_ranks_rows_does_not_have_the_trainers_digest(
    weights: dict[str, torch.Tensor],
) -> None:
    model = RankModel(weights, 1)
    model.up = linear(ColumnParallelLinear, 0, nth(weights["up.weight"], 1), output_partition_sizes=[12])
    [up] = [one for one in told(model) if one["name"] == "up.weight"]
    assert up["cut"] == {"dim": 0, "start": 0, "stop": 12}
    assert up["sha256"] != expected(weights, up)


class TestTheTrainersSlices:
    def test_a_slice_is_digested_under_the_name_that_is_sent(self) -> None:
        model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(6, 4), "head": torch.nn.Linear(4, 6, bias=False)})
        model["head"].weight = model["embed"].weight
        cut = Cut(0, 2, 5)
        asked = [Slice("head.weight", cut), Slice("embed.weight", cut)]
        whole, part = digests(model, asked)
        assert (whole["name"], whole.get("cut")) == ("embed.weight", None)
        assert part == {
            "name": "embed.weight",
            "cut": {"dim": 0, "start": 2, "stop": 5},
            "sha256": digest(model["embed"].weight[2:5]),
            "values_sha256": values_digest(model["embed"].weight[2:5]),
        }

    @pytest.mark.parametrize(
        "asked",
        [
            Slice("nobody.weight", Cut(0, 0, 1)),
            Slice("weight", Cut(2, 0, 1)),
            Slice("weight", Cut(0, 0, 7)),
            Slice("weight", Cut(0, 3, 2)),
            Slice("weight", Cut(0, -1, 2)),
        ],
    )
    def test_what_no_parameter_has_is_left_out(self, asked: Slice) -> None:
        assert [one["name"] for one in digests(torch.nn.Linear(4, 6, bias=False), [asked])] == ["weight"]
