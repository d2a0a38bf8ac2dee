"""The trainer process: warm-up, then transfer 0, then optimizer steps with a refit after each.

`python -m smokestack_payload.trainer --config FILE --events-fd N --commands-fd M`. Speaks JSON lines over the two
pipes and ends when they do; stdout and stderr are a log for people. Order of events: trainer.ready,
transfer.initialised, then for each version: step (not for version 0), refit, probe; trainer.done or trainer.error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from smokestack_payload.errors import ModelError, PayloadError, ProtocolError
from smokestack_payload.events import CommandReader, EventWriter
from smokestack_payload.settings import Plan, TrainerSettings
from smokestack_payload.watchdog import time_limit

SMALL_MODEL = 10_000_000
"""Parameters. Below it one thread is faster: two threads wait for each other longer than they compute."""

MAX_THREADS = 2
"""For the optimizer step of larger models. All else runs on one: idle threads that spin would slow the engine down."""

FAILED = 1


class Trainer:
    """One training run. Heavy imports happen here, not at the module's top: a bad configuration fails at once."""

    def __init__(self, settings: TrainerSettings, events: EventWriter, commands: CommandReader) -> None:
        self._settings = settings
        self._events = events
        self._commands = commands

    def run(self) -> None:
        """The whole protocol. Returns when all is done or the harness said `stop`; raises PayloadError."""
        self._prepare()
        command = self._commands.expect("plan")
        if command is None:
            return
        plan = Plan.parse(command)
        self._connect(plan)
        for version in range(self._settings.steps + 1):
            if version:
                self._step(version, plan)
            self._transfer(version)
            if self._commands.expect("continue") is None:
                return
        self._session.close()
        self._events.emit("trainer.done", steps=self._settings.steps)

    def _prepare(self) -> None:
        """Model, warm-up, learner, probe prompts, and vLLM's transfer modules: all before `trainer.ready`."""
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(self._settings.seed)
        from smokestack_payload.learner import Learner
        from smokestack_payload.tasks import encode_chat, probe_problems, stop_token_ids, task_for

        warmup = self._load_model()
        from vllm.distributed.weight_transfer.base import ModuleSource

        from smokestack_payload.plugin import register

        register()
        self._task = task_for(self._settings.model_dir)
        self._source = ModuleSource(self._model)
        self._stop_ids = stop_token_ids(self._model, self._tokenizer)
        pad_id = self._tokenizer.pad_token_id
        self._learner = Learner(self._model, self._stop_ids[0] if pad_id is None else pad_id, self._settings.grpo)
        self._probe_prompts = [encode_chat(self._tokenizer, one.prompt) for one in probe_problems(self._task)]
        metas = self._source.metadata()
        self._bytes = sum(parameter.numel() * parameter.element_size() for parameter in self._model.parameters())
        self._specs_digest = hashlib.sha256("\n".join(meta.name for meta in metas).encode()).hexdigest()
        self._events.emit(
            "trainer.ready",
            parameters=self._model.num_parameters(),
            bytes=self._bytes,
            dtype=str(self._model.dtype).removeprefix("torch."),
            names_sha256=self._specs_digest,
            warmup=warmup,
            probe_prompts=self._probe_prompts,
            stop_token_ids=self._stop_ids,
        )

    def _load_model(self) -> dict[str, Any] | None:
        """Load version 0 of the policy; returns what the warm-up took, None when there is none to do."""
        from smokestack_payload import model as models

        settings = self._settings
        if settings.warm_weights is None and settings.warm_cache is not None:
            from smokestack_payload.warmup import warmed

            result = warmed(settings.model_dir, settings.warm_cache)
            self._model, self._tokenizer = result.model.to(settings.device), result.tokenizer
            warmup = {"cached": result.cached, "steps": result.steps, "seconds": result.seconds}
        else:
            folder = settings.warm_weights or settings.model_dir
            self._model, self._tokenizer = models.load(folder, settings.device)
            warmup = None
        self._model.eval()
        return warmup

    def _connect(self, plan: Plan) -> None:
        """Form the transfer group with all engines' workers."""
        from smokestack_payload.refit.admin import EngineFleet
        from smokestack_payload.refit.backends import connector
        from smokestack_payload.refit.manifest import read_expected
        from smokestack_payload.refit.session import RefitSession

        limits = self._settings.deadlines
        tied = getattr(self._model, "_tied_weights_keys", None) or ()
        self._session = RefitSession(
            EngineFleet(plan.engines, plan.headers),
            self._source,
            read_expected(self._settings.model_dir, "float32", tied if self._model.config.tie_word_embeddings else ()),
            limits.refit_s,
        )
        seconds = self._session.initialise(connector(self._settings, plan), limits.rendezvous_s)
        self._events.emit("transfer.initialised", world_size=plan.world_size, seconds=seconds)

    def _transfer(self, version: int) -> None:
        """Refit all engines to `version`, then say what this process computes with the same weights."""
        from smokestack_payload.probes import probe
        from smokestack_payload.refit.packing import count_buckets

        report = self._session.refit(version)
        self._events.emit(
            "refit",
            version=version,
            seconds=report.seconds,
            bytes=self._bytes,
            buckets=count_buckets(self._source.metadata(), self._settings.bucket_bytes),
            engines=report.engines,
            workers=report.workers,
        )
        with self._limited(f"the probe of version {version}"):
            probes = [
                probe(self._model, ids, self._settings.probe_new_tokens, self._stop_ids) for ids in self._probe_prompts
            ]
        self._events.emit("probe", version=version, probes=probes)

    def _step(self, step: int, plan: Plan) -> None:
        """Rollouts under version `step - 1`, rewards, one optimizer step."""
        from smokestack_payload.learner import Sample
        from smokestack_payload.rollout import Prompt, Sampler
        from smokestack_payload.tasks import encode_chat

        grpo, limits = self._settings.grpo, self._settings.deadlines
        seed = grpo.seed + step * grpo.prompts_per_step * grpo.group_size
        prompts = [
            Prompt(problem, encode_chat(self._tokenizer, problem.prompt))
            for problem in self._task.sample(grpo.prompts_per_step, seed)
        ]
        sampler = Sampler(
            frontend_url=plan.frontend_url.rstrip("/"),
            model=plan.served_model_name,
            vocab_size=self._model.config.vocab_size,
            max_new_tokens=grpo.max_new_tokens,
            stop_token_ids=self._stop_ids,
            request_s=limits.request_s,
            total_s=limits.step_s,
        )
        begun = time.monotonic()
        batch = sampler.sample(prompts, grpo.group_size, seed)
        sampled = time.monotonic()
        groups, rewards = [], []
        for prompt, rollouts in zip(prompts, batch.groups, strict=True):
            kept = [rollout for rollout in rollouts if rollout is not None]
            texts = [self._tokenizer.decode(rollout.token_ids, skip_special_tokens=True) for rollout in kept]
            groups.append([Sample(prompt.ids, rollout.token_ids, rollout.logprobs) for rollout in kept])
            rewards.append([self._task.reward(prompt.problem, text) for text in texts])
        with self._limited(f"optimizer step {step}"), self._threads_for_training():
            result = self._learner.step(groups, rewards)
        flat = [reward for group in rewards for reward in group]
        mean = sum(flat) / len(flat)
        self._events.emit(
            "step",
            step=step,
            version_sampled=step - 1,
            loss=result.loss,
            grad_norm=result.grad_norm,
            tokens=result.tokens,
            rollouts=len(prompts) * grpo.group_size,
            errored=batch.errored,
            errors=batch.errors,
            rewards={
                "mean": mean,
                "std": (sum((reward - mean) ** 2 for reward in flat) / len(flat)) ** 0.5,
                "groups": [
                    {"prompt": prompt.problem.prompt, "rewards": group}
                    for prompt, group in zip(prompts, rewards, strict=True)
                ],
            },
            mismatch=asdict(result.mismatch),
            seconds={"rollout": sampled - begun, "train": time.monotonic() - sampled},
        )

    @contextmanager
    def _threads_for_training(self) -> Iterator[None]:
        import torch

        small = self._model.num_parameters() < SMALL_MODEL
        torch.set_num_threads(1 if small else min(MAX_THREADS, os.cpu_count() or 1))
        yield
        torch.set_num_threads(1)

    def _limited(self, what: str) -> Any:
        return time_limit(what, self._settings.deadlines.step_s, self._expired)

    def _expired(self, what: str, seconds: float) -> None:
        fail(
            self._events,
            ModelError(f"{what} did not end in time", expected=f"done within {seconds:g} s", found="still computing"),
        )


def fail(events: EventWriter, error: PayloadError) -> NoReturn:
    """Report `error` and end the process at once: threads may be stuck in a collective and would never be joined."""
    sys.stderr.flush()
    events.emit("trainer.error", error=error.as_dict())
    os._exit(FAILED)


def read_settings(path: Path) -> TrainerSettings:
    """Raises ProtocolError, with the path, for anything but a configuration as `settings` describes it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProtocolError("the configuration cannot be read", found=str(error), where=str(path)) from error
    return TrainerSettings.parse(raw)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smokestack_payload.trainer", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--events-fd", type=int, required=True)
    parser.add_argument("--commands-fd", type=int, required=True)
    options = parser.parse_args(argv)
    events = EventWriter(options.events_fd)
    try:
        Trainer(read_settings(options.config), events, CommandReader(options.commands_fd)).run()
    except PayloadError as error:
        traceback.print_exc()
        fail(events, error)
    except BrokenPipeError:
        raise  # the harness is gone; there is nobody to tell
    except Exception as error:  # noqa: BLE001 - the process's last word: whatever it was, the harness must hear of it
        traceback.print_exc()
        fail(events, ModelError(f"the trainer failed: {type(error).__name__}: {error}", hint="see the trainer's log"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
