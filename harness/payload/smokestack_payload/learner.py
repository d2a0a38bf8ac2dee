"""One optimizer step from one batch of rollouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smokestack_payload.errors import ModelError
from smokestack_payload.fits import VersionFit, copied, exchanged, largest_gaps, spread
from smokestack_payload.grpo import Mismatch, clipped_loss, group_advantages, mismatch, token_logprobs
from smokestack_payload.settings import GrpoSettings

MAX_GRAD_NORM = 1.0
LOGIT_BYTES = 128 * 1024 * 1024
"""Memory that the logits of one part of a step may take (a large vocabulary makes them the biggest tensor)."""


@dataclass(frozen=True)
class Sample:
    """One rollout with its prompt. `engine_logprobs`: one for each of `token_ids`, as the engine sampled them."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    engine_logprobs: Sequence[float]


@dataclass(frozen=True)
class StepResult:
    """`grad_norm` is the one before clipping; `tokens` counts response tokens.

    `fits` compares some rollouts with the version before the one that sampled (from the second step on), with that one,
    and with the one that this step made.
    """

    loss: float
    grad_norm: float
    tokens: int
    mismatch: Mismatch
    fits: list[VersionFit]


@dataclass(frozen=True)
class _Part:
    """Some samples as tensors: `ids` [n, L]; the others [n, R], right-padded over the longest response."""

    ids: torch.Tensor
    targets: torch.Tensor
    positions: torch.Tensor
    old: torch.Tensor
    mask: torch.Tensor


class Learner:
    """Model and optimizer: AdamW without weight decay, so that only rewards move weights (by momentum, former ones)."""

    def __init__(self, model: Any, pad_id: int, settings: GrpoSettings) -> None:
        self._model = model
        self._pad_id = pad_id
        self._settings = settings
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
        self._former: list[torch.Tensor] | None = None

    def step(self, groups: Sequence[Sequence[Sample]], rewards: Sequence[Sequence[float]], version: int) -> StepResult:
        """Take one step. `rewards` has the shape of `groups`; groups may differ in size (failed rollouts).

        The policy that sampled is the engine's at `version`: its log-probabilities are the ratio's denominator.
        """
        advantages = torch.cat([group_advantages(torch.tensor([group]))[0] for group in rewards if group])
        samples = [sample for group in groups for sample in group]
        tokens = sum(len(sample.token_ids) for sample in samples)
        self._optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        trainer, engine, masks = [], [], []
        for start, part in self._parts(samples):
            new = self._logprobs(part)
            part_loss = clipped_loss(
                new,
                part.old,
                advantages[start : start + len(part.ids)].to(part.ids.device),
                part.mask,
                clip_low=self._settings.clip_low,
                clip_high=self._settings.clip_high,
                tokens=tokens,
            )
            part_loss.backward()
            loss += float(part_loss.detach())
            kept = part.mask
            trainer.append(new.detach()[kept])
            engine.append(part.old[kept])
            masks.append(part.mask[kept])
        norm = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), MAX_GRAD_NORM))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ModelError("the step is not finite", expected="finite loss and gradient", found=f"{loss}, {norm}")
        difference = mismatch(torch.cat(trainer), torch.cat(engine), torch.cat(masks))
        fits = self._move(spread(samples), version)
        return StepResult(loss=loss, grad_norm=norm, tokens=tokens, mismatch=difference, fits=fits)

    def _move(self, samples: Sequence[Sample], version: int) -> list[VersionFit]:
        """Let the optimizer move the weights; how `samples` fit the versions before, of and after their sampling."""
        fits = [self._fit(samples, version)]
        if self._former is not None:
            with exchanged(self._model, self._former):
                fits.insert(0, self._fit(samples, version - 1))
        self._former = copied(self._model)
        self._optimizer.step()
        return [*fits, self._fit(samples, version + 1)]

    @torch.no_grad()
    def _fit(self, samples: Sequence[Sample], version: int) -> VersionFit:
        """`samples` against the weights of this moment, which are those of `version`."""
        gaps: list[float] = []
        for _, part in self._parts(samples):
            gaps += largest_gaps(self._logprobs(part), part.old, part.mask)
        return VersionFit(version, gaps)

    def _logprobs(self, part: _Part) -> torch.Tensor:
        """Log-probabilities [n, R] of the responses. Right-padding needs no attention mask: attention is causal."""
        hidden = self._model.get_decoder()(input_ids=part.ids, use_cache=False).last_hidden_state
        wanted = hidden.gather(1, part.positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
        return token_logprobs(self._model.get_output_embeddings()(wanted), part.targets)

    def _parts(self, samples: Sequence[Sample]) -> list[tuple[int, _Part]]:
        longest = max(len(sample.token_ids) for sample in samples)
        size = max(1, LOGIT_BYTES // (longest * self._model.config.vocab_size * 4))
        return [(start, self._tensors(samples[start : start + size])) for start in range(0, len(samples), size)]

    def _tensors(self, samples: Sequence[Sample]) -> _Part:
        length = max(len(sample.prompt_ids) + len(sample.token_ids) for sample in samples)
        width = max(len(sample.token_ids) for sample in samples)
        ids = torch.full((len(samples), length), self._pad_id)
        targets = torch.zeros((len(samples), width), dtype=torch.long)
        positions = torch.zeros((len(samples), width), dtype=torch.long)
        old = torch.zeros((len(samples), width))
        mask = torch.zeros((len(samples), width), dtype=torch.bool)
        for row, sample in enumerate(samples):
            prompt, answer = len(sample.prompt_ids), len(sample.token_ids)
            ids[row, : prompt + answer] = torch.tensor([*sample.prompt_ids, *sample.token_ids])
            targets[row, :answer] = torch.tensor(sample.token_ids)
            positions[row, :answer] = torch.arange(prompt - 1, prompt + answer - 1)
            old[row, :answer] = torch.tensor(sample.engine_logprobs)
            mask[row, :answer] = True
        device = self._model.device
        return _Part(*(tensor.to(device) for tensor in (ids, targets, positions, old, mask)))
