"""What a model on vLLM's CPU backend holds, told in the trainer's terms; real linear methods, without an engine."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from smokestack_payload.contents import Told, multiplied, told
from smokestack_payload.destroy import repack_zeros
from smokestack_payload.digests import digest, values_digest
from smokestack_payload.held import described, digests, perturbed, tied_names
from smokestack_payload.worker import ContentWorker
from vllm.lora.layers.base import BaseLayerWithLoRA
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)

EMPTY = hashlib.sha256(b"").hexdigest()
WIDE = 640
"""Columns; more than one product takes."""


class Linear(torch.nn.Module):
    """A linear layer as vLLM's CPU backend leaves it: packed, its weight freed."""

    def __init__(self, weight: torch.Tensor, sizes: list[int], tp_size: int = 1) -> None:
        super().__init__()
        self.output_sizes, self.input_size_per_partition, self.tp_size = sizes, weight.shape[1], tp_size
        self.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
        self.quant_method = UnquantizedLinearMethod()
        self.quant_method.process_weights_after_loading(self)


def embedding(kind: Any, weight: torch.nn.Parameter, vocabulary: int) -> Any:
    """An embedding or an output head over `weight`, whose last rows only fill the vocabulary up."""
    layer = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    layer.org_vocab_size, layer.embedding_dim, layer.tp_size = vocabulary, weight.shape[1], 1
    layer.weight = weight
    layer.quant_method = UnquantizedEmbeddingMethod()
    layer.quant_method.process_weights_after_loading(layer)
    return layer


class Model(torch.nn.Module):
    packed_modules_mapping: ClassVar = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def __init__(self, weights: dict[str, torch.Tensor], tp_size: int = 1) -> None:
        super().__init__()
        fused = torch.cat([weights["q_proj.weight"], weights["k_proj.weight"], weights["v_proj.weight"]])
        self.qkv_proj = Linear(fused, [32, 16, 16], tp_size)
        padded = torch.cat([weights["embed_tokens.weight"], torch.zeros(5, WIDE)])
        self.embed_tokens = embedding(VocabParallelEmbedding, torch.nn.Parameter(padded, requires_grad=False), 59)
        self.norm = torch.nn.RMSNorm(WIDE)
        self.norm.weight.data.copy_(weights["norm.weight"])
        self.lm_head = embedding(ParallelLMHead, self.embed_tokens.weight, 59)


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    sizes = {
        "q_proj": (32, WIDE),
        "k_proj": (16, WIDE),
        "v_proj": (16, WIDE),
        "embed_tokens": (59, WIDE),
        "norm": (WIDE,),
    }
    return {f"{name}.weight": torch.randn(size) for name, size in sizes.items()}


def by_name(model: torch.nn.Module) -> dict[str, Told]:
    listed = told(model)
    named = {one["name"]: one for one in listed}
    assert len(named) == len(listed)
    return named


def test_the_engine_freed_what_it_repacked_and_its_digest_is_that_of_nothing(weights: dict[str, torch.Tensor]) -> None:
    """So the engine's own digest of such a weight is evidence of nothing."""
    assert digest(Model(weights).qkv_proj.weight) == EMPTY


def test_every_trainer_parameter_is_told_once_with_its_own_name_and_shape(weights: dict[str, torch.Tensor]) -> None:
    named = by_name(Model(weights))
    assert named.keys() == weights.keys() | {"lm_head.weight"}
    assert {name: named[name]["shape"] for name in weights} == {n: list(w.shape) for n, w in weights.items()}
    assert {one["dtype"] for one in named.values()} == {"float32"}
    assert {name: one["how"] for name, one in named.items()} == {
        "q_proj.weight": "multiplied",
        "k_proj.weight": "multiplied",
        "v_proj.weight": "multiplied",
        "embed_tokens.weight": "part",
        "norm.weight": "held",
        "lm_head.weight": "multiplied",
    }


def test_a_repacked_weight_is_read_back_bit_for_bit(weights: dict[str, torch.Tensor]) -> None:
    named = by_name(Model(weights))
    for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "embed_tokens.weight"):
        assert named[name]["sha256"] == digest(weights[name]), name
    assert named["lm_head.weight"]["sha256"] == digest(weights["embed_tokens.weight"])
    assert named["norm.weight"]["sha256"] is None, "vLLM's own digest is the evidence"


def test_negative_zero_comes_back_as_zero_and_the_trainers_digest_of_values_knows(
    weights: dict[str, torch.Tensor],
) -> None:
    weights["k_proj.weight"][3, 5] = -0.0
    shown = by_name(Model(weights))["k_proj.weight"]["sha256"]
    assert shown == values_digest(weights["k_proj.weight"]) != digest(weights["k_proj.weight"])


@pytest.mark.parametrize("name", ["q_proj.weight", "k_proj.weight", "v_proj.weight", "embed_tokens.weight"])
def test_one_flipped_bit_shows_in_exactly_the_parameter_that_has_it(
    name: str, weights: dict[str, torch.Tensor]
) -> None:
    before = by_name(Model(weights))
    weights[name].view(torch.int32)[7, 11] ^= 1
    after = by_name(Model(weights))
    expected = {name, "lm_head.weight"} if name == "embed_tokens.weight" else {name}
    assert {other for other in before if before[other]["sha256"] != after[other]["sha256"]} == expected


def test_an_output_head_that_kept_its_old_packed_copy_is_told_apart_from_the_embedding(
    weights: dict[str, torch.Tensor],
) -> None:
    """F06: the embedding is new, and the tied head still multiplies by the old one."""
    model = Model(weights)
    model.embed_tokens.weight.data.add_(1)
    named = by_name(model)
    assert named["embed_tokens.weight"]["sha256"] == digest(weights["embed_tokens.weight"] + 1)
    assert named["lm_head.weight"]["sha256"] == digest(weights["embed_tokens.weight"])


def test_a_slice_over_several_ranks_is_no_evidence(weights: dict[str, torch.Tensor]) -> None:
    named = by_name(Model(weights, tp_size=2))
    for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight"):
        assert (named[name]["how"], named[name]["shape"], named[name]["sha256"]) == ("sharded", None, None)


def test_destroying_reaches_what_was_repacked(weights: dict[str, torch.Tensor]) -> None:
    model = Model(weights)
    for parameter in model.parameters():
        parameter.data.zero_()
    assert not torch.equal(multiplied(model.qkv_proj), torch.zeros(64, WIDE)), "vLLM's reset alone passes it by"
    repack_zeros(model)
    for layer in (model.qkv_proj, model.lm_head):
        assert not multiplied(layer).any()
    assert model.qkv_proj.weight.numel() == 0, "freed again, as the next refit expects it"


def test_reading_changes_nothing(weights: dict[str, torch.Tensor]) -> None:
    model = Model(weights)
    assert told(model) == told(model)


class Runner:
    """A worker as far as the extension needs one."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model_runner = SimpleNamespace(get_model=lambda: model)

    def _weight_checksum_prefix(self) -> str:
        return "tp0:"

    def reset_weights(self) -> None:
        from vllm.model_executor.model_loader.weight_checksum import zero_weights

        zero_weights(self.model_runner.get_model())


class Worker(Runner, ContentWorker):
    """As vLLM mixes the extension into its own class."""


def test_a_worker_tells_what_its_model_holds_and_destroys_all_of_it(weights: dict[str, torch.Tensor]) -> None:
    worker = Worker(Model(weights))
    before = worker.smokestack_contents()
    assert before == {"prefix": "tp0:", "parameters": told(Model(weights))}
    worker.smokestack_destroy()
    after = worker.smokestack_contents()["parameters"]
    for one, parameter in zip(after, before["parameters"], strict=True):
        assert (one["name"], one["shape"]) == (parameter["name"], parameter["shape"])
        if one["how"] != "held":
            assert one["sha256"] == digest(torch.zeros(one["shape"])), one["name"]


class TestTheTrainersSide:
    def model(self) -> Any:
        torch.manual_seed(5)
        model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 4), "head": torch.nn.Linear(4, 5, bias=False)})
        model["head"].weight = model["embed"].weight
        model["bias"] = torch.nn.Linear(2, 2)
        model["bias"].bias.data.zero_()
        return model

    def test_a_tied_parameter_is_the_one_that_is_sent_under_a_second_name(self) -> None:
        assert tied_names(self.model()) == {"head.weight": "embed.weight"}

    def test_digests_are_of_the_models_own_memory(self) -> None:
        model = self.model()
        listed = {one["name"]: one["sha256"] for one in digests(model)}
        assert listed == {name: digest(parameter) for name, parameter in model.named_parameters()}

    def test_a_digest_is_vllms(self) -> None:
        from vllm.model_executor.model_loader.weight_checksum import compute_tensor_digests

        model = self.model()
        assert compute_tensor_digests(model) == {one["name"]: one["sha256"] for one in digests(model)}

    def test_a_perturbation_changes_every_parameter_and_returns_every_bit(self) -> None:
        model = self.model()
        before = digests(model)
        with perturbed(model, seed=1):
            changed = digests(model)
        assert all(one["sha256"] != two["sha256"] for one, two in zip(before, changed, strict=True))
        assert digests(model) == before

    def test_what_is_announced_is_what_the_source_says(self) -> None:
        meta = type("Meta", (), {"name": "a", "dtype": torch.bfloat16, "shape": (2, 3)})
        assert described([meta]) == [{"name": "a", "dtype": "bfloat16", "shape": [2, 3]}]


class Adapted(BaseLayerWithLoRA):
    """As vLLM wraps a layer that adapters may be added to: the wrapper answers for the layer inside."""

    def __init__(self, base_layer: torch.nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer

    @property
    def weight(self) -> torch.Tensor:
        weight: torch.Tensor = self.base_layer.weight
        return weight


def test_a_model_that_takes_adapters_holds_the_same_under_the_same_names(weights: dict[str, torch.Tensor]) -> None:
    plain, model = Model(weights), Model(weights)
    model.qkv_proj, model.embed_tokens = Adapted(model.qkv_proj), Adapted(model.embed_tokens)
    assert by_name(model) == by_name(plain)
    model.embed_tokens.weight.zero_()
    repack_zeros(model)
    assert not multiplied(model.qkv_proj.base_layer).any()
