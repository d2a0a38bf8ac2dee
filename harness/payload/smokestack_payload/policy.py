"""The policy that is trained: model, tokenizer, task and probes, loaded once and then changed in place.

Imports torch and vLLM inside its functions, so that a bad configuration fails before they are loaded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smokestack_payload.settings import TrainerSettings

if TYPE_CHECKING:
    from smokestack_payload.refit.manifest import Expected
    from smokestack_payload.tasks import Problem, Task

SMALL_MODEL = 10_000_000
"""Parameters. Below it one thread is faster: two threads wait for each other longer than they compute."""

MAX_THREADS = 2
"""For the optimizer step of larger models. All else runs on one: idle threads that spin would slow the engine down."""


@dataclass(frozen=True)
class Policy:
    """`model` is trained, `served` is what engines get of it, and `source` yields that to vLLM's transfer engines.

    They are one object where an engine computes in the trainer's own float32. Where it computes in bfloat16, `served`
    is a copy that `publish` renews: a step is smaller than the spacing of bfloat16, training in it would stand still.
    `warmup` says what the warm-up took, if any.
    """

    model: Any
    served: Any
    tokenizer: Any
    task: Task
    source: Any
    stop_token_ids: list[int]
    probe_prompts: list[list[int]]
    warmup: dict[str, Any] | None

    @property
    def bytes(self) -> int:
        return sum(parameter.numel() * parameter.element_size() for parameter in self.served.parameters())

    def publish(self) -> None:
        """Let `served` be what the model is now, rounded to its own type."""
        import torch

        if self.served is not self.model:
            with torch.no_grad():
                for copy, parameter in zip(self.served.parameters(), self.model.parameters(), strict=True):
                    copy.copy_(parameter)

    @property
    def pad_token_id(self) -> int:
        """What fills rows up; any token will do, since nothing attends to it."""
        pad_id = self.tokenizer.pad_token_id
        return self.stop_token_ids[0] if pad_id is None else int(pad_id)

    def encode(self, problem: Problem) -> list[int]:
        """The problem as a chat prompt, in token ids."""
        from smokestack_payload.tasks import encode_chat

        return encode_chat(self.tokenizer, problem.prompt)

    def described(self) -> dict[str, Any]:
        """The fields of `trainer.ready`."""
        from smokestack_payload.held import described, tied_names

        metas = self.source.metadata()
        names = "\n".join(meta.name for meta in metas)
        return {
            "parameters": self.model.num_parameters(),
            "bytes": self.bytes,
            "dtype": str(self.served.dtype).removeprefix("torch."),
            "names_sha256": hashlib.sha256(names.encode()).hexdigest(),
            "warmup": self.warmup,
            "probe_prompts": self.probe_prompts,
            "stop_token_ids": self.stop_token_ids,
            "tensors": described(metas),
            "tied": tied_names(self.served),
        }

    def expected(self, settings: TrainerSettings) -> Expected:
        """The tensors that the model folder says an engine has, which is what a refit must bring."""
        from smokestack_payload.refit.manifest import read_expected

        tied = getattr(self.model, "_tied_weights_keys", None) or ()
        return read_expected(
            settings.model_dir, settings.precision, tied if self.model.config.tie_word_embeddings else ()
        )

    def probes(self, new_tokens: int) -> list[Any]:
        """What this process computes for each probe prompt with the weights of this moment."""
        from smokestack_payload.probes import probe

        return [probe(self.served, ids, new_tokens, self.stop_token_ids) for ids in self.probe_prompts]

    @contextmanager
    def threads_for_training(self) -> Iterator[None]:
        import torch

        small = self.model.num_parameters() < SMALL_MODEL
        torch.set_num_threads(1 if small else min(MAX_THREADS, os.cpu_count() or 1))
        yield
        torch.set_num_threads(1)


def load_policy(settings: TrainerSettings) -> Policy:
    """Version 0 of the policy, warmed up where the settings name a cache for that; vLLM's transfer modules with it."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    from smokestack_payload.tasks import encode_chat, probe_problems, stop_token_ids, task_for

    model, tokenizer, warmup = _load_model(settings)
    from smokestack_payload.plugin import register
    from smokestack_payload.refit.source import ParameterSource
    from smokestack_payload.sabotage import spoiled_source

    register()
    task = task_for(settings.model_dir)
    served = served_copy(model.eval(), settings.precision)
    return Policy(
        model=model,
        served=served,
        tokenizer=tokenizer,
        task=task,
        source=spoiled_source(ParameterSource(served), settings),
        stop_token_ids=stop_token_ids(model, tokenizer),
        probe_prompts=[encode_chat(tokenizer, problem.prompt) for problem in probe_problems(task)],
        warmup=warmup,
    )


def served_copy(model: Any, precision: str) -> Any:
    """The model itself where its parameters have this type already, else a copy with such parameters.

    Only parameters are converted: buffers such as the rotary frequencies stay exact, in vLLM as well.
    """
    import copy

    import torch

    dtype: torch.dtype = getattr(torch, precision)
    if all(parameter.dtype == dtype for parameter in model.parameters()):
        return model
    served = copy.deepcopy(model)
    for parameter in served.parameters():
        parameter.data = parameter.data.to(dtype)
    return served.requires_grad_(requires_grad=False)


def _load_model(settings: TrainerSettings) -> tuple[Any, Any, dict[str, Any] | None]:
    if settings.warm_cache is None:
        from smokestack_payload import model as models

        return *models.load(settings.model_dir, settings.device), None
    from smokestack_payload.warmup import warmed

    result = warmed(settings.model_dir, settings.warm_cache)
    warmup = {"cached": result.cached, "steps": result.steps, "seconds": result.seconds}
    return result.model.to(settings.device), result.tokenizer, warmup
