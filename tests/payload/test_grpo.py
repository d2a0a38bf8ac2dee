"""The objective against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from smokestack_payload.grpo import clipped_loss, group_advantages, mismatch, token_logprobs


def test_advantages_are_rewards_normalised_within_their_own_group() -> None:
    found = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]))
    assert found[0].tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0], abs=1e-5)
    # mean 0.25, population std sqrt(3)/4: (1 - 0.25) / 0.4330 and (0 - 0.25) / 0.4330
    assert found[1].tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3], abs=1e-5)


def test_a_group_of_equal_rewards_has_no_advantage() -> None:
    assert group_advantages(torch.tensor([[1.0, 1.0, 1.0]])).tolist() == [[0.0, 0.0, 0.0]]


def test_token_logprobs_are_the_log_softmax_at_the_target() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]], dtype=torch.bfloat16)
    found = token_logprobs(logits, torch.tensor([[1, 0]]))
    assert found.dtype == torch.float32
    assert found[0].tolist() == pytest.approx([math.log(0.75), math.log(0.5)], abs=2e-3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [
        (1.0, 2.0, 2.0),  # inside the bounds: ratio * advantage
        (1.5, 2.0, 2.6),  # above 1 + 0.3 with a good answer: held at 1.3
        (1.5, -2.0, -3.0),  # above it with a bad answer: not held, the step must undo it
        (0.5, -2.0, -1.6),  # below 1 - 0.2 with a bad answer: held at 0.8
        (0.5, 2.0, 1.0),  # below it with a good answer: not held
    ],
)
def test_the_ratio_is_clipped_only_where_it_would_gain(ratio: float, advantage: float, objective: float) -> None:
    loss = clipped_loss(
        torch.tensor([[math.log(ratio)]]),
        torch.zeros(1, 1),
        torch.tensor([advantage]),
        torch.ones(1, 1),
        clip_low=0.2,
        clip_high=0.3,
        tokens=1,
    )
    assert float(loss) == pytest.approx(-objective, rel=1e-5)


def test_every_token_weighs_the_same_whatever_its_sequences_length() -> None:
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    zeros = torch.zeros(2, 3)
    loss = clipped_loss(zeros, zeros, torch.tensor([1.0, -1.0]), mask, clip_low=0.2, clip_high=0.2, tokens=4)
    assert float(loss) == pytest.approx(-(3 - 1) / 4)


def test_padding_carries_no_gradient() -> None:
    new = torch.zeros(1, 2, requires_grad=True)
    loss = clipped_loss(
        new, torch.zeros(1, 2), torch.tensor([1.0]), torch.tensor([[1.0, 0.0]]), clip_low=0.2, clip_high=0.2, tokens=1
    )
    loss.backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[-1.0, 0.0]]


def test_mismatch_measures_only_counted_tokens() -> None:
    trainer = torch.tensor([[-1.0, -2.0, 9.0]])
    engine = torch.tensor([[-1.1, -1.8, 0.0]])
    found = mismatch(trainer, engine, torch.tensor([[1, 1, 0]]))
    assert found.mean_abs == pytest.approx(0.15, abs=1e-6)
    assert found.max_abs == pytest.approx(0.2, abs=1e-6)
    k3 = ((math.exp(0.1) - 1 - 0.1) + (math.exp(-0.2) - 1 + 0.2)) / 2
    assert found.k3 == pytest.approx(k3, abs=1e-6)
