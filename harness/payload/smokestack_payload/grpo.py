"""The GRPO objective in float32, as pure functions of tensors.

Shapes: G groups, S samples a group, N = G*S sequences, T response tokens (padded). Sources:
[G] Shao et al. 2024, DeepSeekMath, arXiv:2402.03300; [P] Schulman et al. 2017, PPO, arXiv:1707.06347;
[D] Yu et al. 2025, DAPO, arXiv:2503.14476; [K] Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

STD_FLOOR = 1e-6
"""Added to a group's standard deviation, as it stands in the denominator."""


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """Advantages [G, S] of rewards [G, S]: (r - mean) / (std + 1e-6) within each group, [G] section 4.1.2.

    The standard deviation is the population's. A group of equal rewards gets zeros: it says nothing.
    """
    rewards = rewards.float()
    mean = rewards.mean(dim=1, keepdim=True)
    std = rewards.std(dim=1, keepdim=True, unbiased=False)
    return (rewards - mean) / (std + STD_FLOOR)


def token_logprobs(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-probabilities [N, T] (float32) of `targets` [N, T] under `logits` [N, T, vocabulary] at temperature 1."""
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def clipped_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    tokens: float,
) -> torch.Tensor:
    """The loss: -sum(mask * min(ratio * A, clip(ratio, 1 - low, 1 + high) * A)) / tokens.

    `new`, `old`, `mask`: [N, T]; `advantages`: [N]. The ratio is exp(new - old), clipped as in [P] equation 7 with
    separate bounds as in [D] section 3.1; every token weighs the same whatever its sequence's length, [D] section
    3.3. `tokens` is the whole step's count, so that the losses of its parts add up to the loss of all of it.
    """
    ratio = torch.exp(new.float() - old.float())
    advantage = advantages.float().unsqueeze(1)
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    return -(objective * mask).sum() / tokens


@dataclass(frozen=True)
class Mismatch:
    """How far the trainer's log-probabilities are from the engine's, over the sampled tokens."""

    mean_abs: float
    max_abs: float
    k3: float


def mismatch(trainer: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> Mismatch:
    """Over the tokens where `mask` [N, T] is true; with d = trainer - engine: mean |d|, max |d|, mean(e^d - 1 - d).

    The last one is [K]'s estimator k3 of KL(engine || trainer), for tokens that the engine sampled: never negative.
    """
    difference = (trainer.double() - engine.double())[mask.bool()]
    if not len(difference):
        return Mismatch(0.0, 0.0, 0.0)
    k3 = torch.expm1(difference) - difference
    return Mismatch(mean_abs=float(difference.abs().mean()), max_abs=float(difference.abs().max()), k3=float(k3.mean()))
