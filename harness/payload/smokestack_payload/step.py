"""One training step: rollouts through the frontend, their rewards, one optimizer step. Its account is an event."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from smokestack_payload.learner import Learner, Sample
from smokestack_payload.policy import Policy
from smokestack_payload.rollout import Prompt, Rollout, RolloutBatch
from smokestack_payload.sabotage import sampler_of, told_version
from smokestack_payload.settings import Plan, TrainerSettings


class Stepper:
    """Takes the steps of one run. `limited(what)` bounds the part that computes and cannot be interrupted."""

    def __init__(
        self,
        policy: Policy,
        settings: TrainerSettings,
        plan: Plan,
        limited: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._grpo = settings.grpo
        self._learner = Learner(policy.model, policy.pad_token_id, settings.grpo)
        self._sampler = sampler_of(settings)(
            frontend_url=plan.frontend_url.rstrip("/"),
            model=plan.served_model_name,
            vocab_size=policy.model.config.vocab_size,
            max_new_tokens=settings.grpo.max_new_tokens,
            stop_token_ids=policy.stop_token_ids,
            request_s=settings.deadlines.request_s,
            total_s=settings.deadlines.step_s,
            carried=plan.carried,
        )
        self._limited = limited

    def take(self, step: int) -> dict[str, Any]:
        """Rollouts under version `step - 1`, rewards, one optimizer step. Returns the fields of the event `step`."""
        begun = time.monotonic()
        prompts, batch = self._sampled(step)
        sampled = time.monotonic()
        groups, rewards = self._graded(prompts, batch)
        with self._limited(f"optimizer step {step}"), self._policy.threads_for_training():
            result = self._learner.step(groups, rewards, step - 1)
        return {
            "step": step,
            "version_sampled": told_version(step, self._settings),
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "tokens": result.tokens,
            "rollouts": len(prompts) * self._grpo.group_size,
            "errored": batch.errored,
            "errors": batch.errors,
            "rewards": _summary(prompts, rewards),
            "mismatch": asdict(result.mismatch),
            "answers": [_answer(rollout) for group in batch.groups for rollout in group],
            "fits": [asdict(fit) for fit in result.fits],
            "seconds": {"rollout": sampled - begun, "train": time.monotonic() - sampled},
        }

    def _sampled(self, step: int) -> tuple[list[Prompt], RolloutBatch]:
        """The step's prompts, with what the frontend answers to them now."""
        prompts, seed = self._prompts(step)
        return prompts, self._sampler.sample(prompts, self._grpo.group_size, seed)

    def _prompts(self, step: int) -> tuple[list[Prompt], int]:
        """The step's problems, and the seed of its first rollout; no two rollouts of a run have the same one."""
        grpo = self._grpo
        seed = grpo.seed + step * grpo.prompts_per_step * grpo.group_size
        problems = self._policy.task.sample(grpo.prompts_per_step, seed)
        return [Prompt(problem, self._policy.encode(problem)) for problem in problems], seed

    def _graded(self, prompts: list[Prompt], batch: RolloutBatch) -> tuple[list[list[Sample]], list[list[float]]]:
        """The rollouts that came back, as samples, with their rewards: both by prompt."""
        groups, rewards = [], []
        for prompt, rollouts in zip(prompts, batch.groups, strict=True):
            kept = [rollout for rollout in rollouts if rollout is not None]
            texts = [self._policy.tokenizer.decode(rollout.token_ids, skip_special_tokens=True) for rollout in kept]
            groups.append([Sample(prompt.ids, rollout.token_ids, rollout.logprobs) for rollout in kept])
            rewards.append([self._policy.task.reward(prompt.problem, text) for text in texts])
        return groups, rewards


def _answer(rollout: Rollout | None) -> dict[str, Any] | None:
    """What names one rollout's tokens, and how long it took; None for one that failed."""
    if rollout is None:
        return None
    digest = hashlib.sha256(json.dumps(rollout.token_ids).encode()).hexdigest()
    return {"tokens_sha256": digest, "tokens": len(rollout.token_ids), "seconds": rollout.seconds}


def _summary(prompts: list[Prompt], rewards: list[list[float]]) -> dict[str, Any]:
    flat = [reward for group in rewards for reward in group]
    mean = sum(flat) / len(flat)
    return {
        "mean": mean,
        "std": (sum((reward - mean) ** 2 for reward in flat) / len(flat)) ** 0.5,
        "groups": [
            {"prompt": prompt.problem.prompt, "rewards": group} for prompt, group in zip(prompts, rewards, strict=True)
        ],
    }
