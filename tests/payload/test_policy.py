"""What is trained and what is served: one model in float32, a rounded copy where the engine computes in bfloat16."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from smokestack_payload import model as models
from smokestack_payload.held import digests, perturbed
from smokestack_payload.policy import Policy, served_copy
from smokestack_payload.recipe import TINY


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, _ = models.make_tiny(tmp_path_factory.mktemp("tiny"), TINY)
    return models.load(folder, "cpu")[0].eval()


def policy(model: Any, precision: str) -> Policy:
    served = served_copy(model, precision)
    return Policy(
        model=model,
        served=served,
        tokenizer=SimpleNamespace(pad_token_id=0),
        task=SimpleNamespace(),  # type: ignore[arg-type]
        source=None,
        stop_token_ids=[0],
        probe_prompts=[[1, 2, 3]],
        warmup=None,
    )


def test_in_the_trainers_own_precision_there_is_one_model(master: Any) -> None:
    made = policy(master, "float32")
    assert made.served is made.model
    made.publish()


def test_a_copy_has_its_own_parameters_and_exact_buffers(master: Any) -> None:
    made = policy(copy.deepcopy(master), "bfloat16")
    assert {parameter.dtype for parameter in made.served.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in made.model.parameters()} == {torch.float32}
    assert all(buffer.dtype != torch.bfloat16 for buffer in made.served.buffers())
    assert not any(parameter.requires_grad for parameter in made.served.parameters())
    assert made.bytes == 2 * sum(parameter.numel() for parameter in made.model.parameters())


def test_only_publishing_brings_a_step_to_what_is_served(master: Any) -> None:
    made = policy(copy.deepcopy(master), "bfloat16")
    before = digests(made.served)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(1.0)
    assert digests(made.served) == before
    made.publish()
    assert digests(made.served) != before
    for copied, parameter in zip(made.served.parameters(), made.model.parameters(), strict=True):
        assert torch.equal(copied, parameter.to(torch.bfloat16))


def test_a_perturbation_of_what_is_served_leaves_the_trained_model_alone(master: Any) -> None:
    made = policy(copy.deepcopy(master), "bfloat16")
    trained, served = digests(made.model), digests(made.served)
    with perturbed(made.served, seed=1):
        assert digests(made.served) != served
        assert digests(made.model) == trained
    assert digests(made.served) == served


def test_the_probes_are_of_what_is_served(master: Any) -> None:
    made = policy(copy.deepcopy(master), "bfloat16")
    exact = policy(master, "float32").probes(2)[0]["prompt_logprobs"]
    rounded = made.probes(2)[0]["prompt_logprobs"]
    assert rounded != exact
    assert max(abs(a - b) for a, b in zip(rounded, exact, strict=True)) < 0.1


def test_what_is_expected_of_an_engine_is_in_its_precision(tmp_path: Path, master: Any) -> None:
    from conftest import configured
    from smokestack_payload.settings import TrainerSettings

    master.save_pretrained(tmp_path)
    settings = TrainerSettings.parse(configured(tmp_path, precision="bfloat16"))
    assert policy(master, "float32").expected(settings).dtype == "bfloat16"
