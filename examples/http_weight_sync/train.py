"""A trainer that knows nothing of Smokestack but its variables: it updates the engine with vLLM's own HTTP client.

    ./noxw -s smoke -- --trainer '.venv-cpu/bin/python examples/http_weight_sync/train.py'

For each step it samples sums through the frontend, keeps the right answers, takes one optimizer step towards them, and
refits the engine: pause, `send_weights` of vLLM's trainer-side engine over `HTTPVLLMWeightSyncClient`, resume. The
bytes travel over the stack's weight-transfer backend: on the CPU Gloo (from the stack's payload wheel), else vLLM's
own NCCL, which was not measured. One engine, with any number of ranks.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import httpx
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient
from vllm.distributed.weight_transfer.base import ModuleSource
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

TIMEOUT_S = 60
PROMPTS_PER_STEP = 16
LEARNING_RATE = 3e-4


class SyncClient(HTTPVLLMWeightSyncClient):
    """vLLM's client, which names the version that an update sets: the transfer engines finish without one."""

    version: str | None = None

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        super().finish_weight_update(weight_version or self.version)


class Trainer:
    """The policy, the engine that serves it, and the way between the two."""

    def __init__(self, stack: dict[str, str]) -> None:
        folder = Path(stack["MODEL_DIR"])
        self._cuda = stack["REFIT_BACKEND"] == "nccl"
        self._device = "cuda" if self._cuda else "cpu"
        dtype = torch.bfloat16 if self._cuda else torch.float32
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(self._device)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
        self._chat_url = stack["FRONTEND_URL"] + "/v1/chat/completions"
        self._name = stack["MODEL"]
        (self._admin_url,) = stack["ADMIN_URLS"].split(",")
        self._client = SyncClient(self._admin_url, timeout=TIMEOUT_S)
        self._random = random.Random(int(stack["SEED"]))
        self._engine = self._connect(stack)

    def _connect(self, stack: dict[str, str]) -> Any:
        """Form the transfer group of this process and the engine's workers. Each backend wants the same five facts."""
        where: dict[str, Any] = {
            "rank": 0,
            "master_address": stack["RENDEZVOUS_HOST"],
            "master_port": int(stack["RENDEZVOUS_PORT"]),
            "world_size": int(stack["TRANSFER_WORLD_SIZE"]),
        }
        if self._cuda:
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo as InitInfo
        else:
            from smokestack_payload.plugin import register
            from smokestack_payload.refit.wire import GlooTrainerInitInfo as InitInfo

            register()
        source = ModuleSource(self._model)
        return WeightTransferTrainerFactory.trainer_init(InitInfo(**where), client=self._client, source=source)

    def refit(self, version: int) -> None:
        """Give the engine this process's weights as `version`, while nothing is generated."""
        self._client.version = str(version)
        self._order("/pause?mode=wait")
        self._engine.send_weights()
        self._order("/reset_prefix_cache")
        self._order("/resume")

    def step(self) -> str:
        """One optimizer step towards the right ones of the sampled answers; towards the truth if none was right."""
        sums = [(self._random.randint(0, 9), self._random.randint(0, 9)) for _ in range(PROMPTS_PER_STEP)]
        answers = [self._sample(f"{a}+{b}=") for a, b in sums]
        right = [(a, b) for (a, b), answer in zip(sums, answers, strict=True) if answer.strip() == str(a + b)]
        loss = torch.stack([self._loss(f"{a}+{b}=", str(a + b)) for a, b in right or sums]).mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return f"{len(right)} of {len(sums)} answers right, loss {float(loss.detach()):.4f}"

    def _sample(self, question: str) -> str:
        body = {
            "model": self._name,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 8,
            "temperature": 1.0,
            "seed": self._random.randrange(2**31),
        }
        answer = httpx.post(self._chat_url, json=body, timeout=TIMEOUT_S, trust_env=False)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"] or "")

    def _loss(self, question: str, answer: str) -> torch.Tensor:
        """Cross-entropy of the answer's tokens and of the token that ends it, after the question's chat prompt."""
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        prompt = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        target = [*self._tokenizer(answer, add_special_tokens=False)["input_ids"], self._tokenizer.eos_token_id]
        ids = torch.tensor([[*prompt, *target]], device=self._device)
        labels = torch.tensor([[-100] * len(prompt) + target], device=self._device)
        loss: torch.Tensor = self._model(input_ids=ids, labels=labels).loss
        return loss

    def _order(self, path: str) -> None:
        httpx.post(self._admin_url + path, timeout=TIMEOUT_S, trust_env=False).raise_for_status()


def main() -> None:
    prefix = "SMOKESTACK_"
    stack = {name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)}
    torch.manual_seed(int(stack["SEED"]))
    torch.set_num_threads(1)
    trainer = Trainer(stack)
    trainer.refit(0)
    for version in range(1, int(stack["STEPS"]) + 1):
        told = trainer.step()
        trainer.refit(version)
        sys.stdout.write(f"step {version}: {told}\n")


if __name__ == "__main__":
    main()
