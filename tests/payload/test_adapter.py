"""A LoRA adapter that engines can load: it changes every layer that it names, and only while it is applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from smokestack_payload import adapter, model
from smokestack_payload.errors import ModelError
from smokestack_payload.held import digests

SEED = 7


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, _ = model.make_tiny(tmp_path_factory.mktemp("models") / "tiny")
    return model.load(folder, "cpu")[0].eval()


def test_it_is_the_same_for_the_same_seed_and_visible(tiny: Any) -> None:
    one, same, other = adapter.drawn(tiny, SEED), adapter.drawn(tiny, SEED), adapter.drawn(tiny, SEED + 1)
    assert len(one.factors) == 2 * len(adapter.TARGETS)
    for name in one.factors:
        assert torch.equal(one.change(name), same.change(name))
        assert not torch.equal(one.change(name), other.change(name))
        weight = tiny.get_submodule(name).weight.detach()
        ratio = one.change(name).square().mean().sqrt() / weight.square().mean().sqrt()
        assert ratio == pytest.approx(adapter.STRENGTH, rel=1e-3)


def test_it_is_applied_for_a_moment_and_leaves_no_bit_changed(tiny: Any) -> None:
    before, ids = digests(tiny), torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        plain = tiny(input_ids=ids).logits
    drawn = adapter.drawn(tiny, SEED)
    with pytest.raises(RuntimeError, match="inside"), adapter.applied(tiny, drawn):
        changed = {one["name"] for one, two in zip(digests(tiny), before, strict=True) if one != two}
        assert changed == {f"{name}.weight" for name in drawn.factors}
        with torch.no_grad():
            assert (tiny(input_ids=ids).logits - plain).abs().max() > 0.1
        raise RuntimeError("inside")
    assert digests(tiny) == before


def test_it_is_written_in_the_format_of_peft(tiny: Any, tmp_path: Path) -> None:
    drawn = adapter.drawn(tiny, SEED)
    adapter.write(drawn, tmp_path / "adapter")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (adapter.RANK, adapter.ALPHA)
    assert len(tensors) == 2 * len(drawn.factors)
    for name in drawn.factors:
        down = tensors[f"base_model.model.{name}.lora_A.weight"]
        up = tensors[f"base_model.model.{name}.lora_B.weight"]
        assert torch.equal((up @ down) * (config["lora_alpha"] / config["r"]), drawn.change(name))


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="no layer that a LoRA adapter") as caught:
        adapter.drawn(torch.nn.ModuleDict({"c_attn": torch.nn.Linear(2, 2), "act": torch.nn.ReLU()}), SEED)
    assert caught.value.found == "linear layers c_attn"
    assert "q_proj" in (caught.value.expected or "")
    assert "leave out --lora" in (caught.value.hint or "")
    with pytest.raises(ModelError) as caught:
        adapter.drawn(torch.nn.Sequential(torch.nn.ReLU()), SEED)
    assert caught.value.found == "no linear layer"
