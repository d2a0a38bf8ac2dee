"""The resolved configuration of one run, and every deadline of it.

Written to `config.json` before anything starts, so that a run can be read back and repeated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from harness.program import Program

DEFAULT_STEPS = 4
MAX_STEPS = 10_000
RefitKind = Literal["native", "collective-rpc", "filesystem"]
ControlKind = Literal["plain-vllm"]
Platform = Literal["cpu", "cuda"]
Rendezvous = Literal["tcp", "unique-id"]
MIB = 1024 * 1024


class Deadlines(BaseModel):
    """Seconds granted to each wait. Defaults suit a 2-core machine without a GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    install_s: float = 1800.0
    etcd_s: float = 20.0
    engine_s: float = 300.0
    frontend_s: float = 120.0
    sidecar_s: float = 60.0
    discovery_s: float = 60.0
    trainer_ready_s: float = 300.0
    request_s: float = 30.0
    rendezvous_s: float = 60.0
    refit_s: float = 120.0
    step_s: float = 300.0
    command_s: float = 3600.0
    stop_grace_s: float = 10.0


class Packing(BaseModel):
    """How an NCCL refit packs tensors. The trainer tells the workers, so that both ends agree.

    Each end has `buffers` of `buffer_bytes` on its GPU; a tensor that is larger than one travels alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    packed: bool = True
    buffer_bytes: int = Field(default=1024 * MIB, ge=1)
    buffers: int = Field(default=2, ge=1)


class GrpoConfig(BaseModel):
    """Hyperparameters of the trainer's GRPO steps (counts are per optimizer step)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts_per_step: int = 8
    group_size: int = 8
    max_new_tokens: int = 8
    temperature: float = 1.0
    learning_rate: float = 1e-4
    clip_low: float = 0.2
    clip_high: float = 0.2
    seed: int = 20260


class MismatchBudget(BaseModel):
    """What engine and trainer may differ by in the log-probabilities of the same sampled tokens, at each step.

    For float32. docs/adr/0018-mismatch-budget.md has the measurements. `k3` estimates the KL divergence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_abs: float = 1e-3
    mean_abs: float = 1e-4
    k3: float = 1e-8

    @classmethod
    def of(cls, max_abs: float) -> MismatchBudget:
        """The budget with this largest difference; the others keep their ratio to it (k3 goes with its square)."""
        ratio = max_abs / cls().max_abs
        return cls(max_abs=max_abs, mean_abs=cls().mean_abs * ratio, k3=cls().k3 * ratio**2)


class RunConfig(BaseModel):
    """All resolved values of one run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    run_id: str
    run_dir: Path
    project_root: Path
    stack: str
    platform: Platform | None = Field(default=None, description="the manifest's, once it is read")
    environment: Path = Field(description="the stack's isolated environment, e.g. .venv-cpu")
    model: str = Field(description="tiny, smollm2, a name on the hub, or a local folder")
    model_dir: Path | None = Field(default=None, description="folder that the engine serves, once it is made")
    hub_cache: Path | None = Field(default=None, description="the caller's, for a model that is named as on the hub")
    served_model_name: str
    starts_untrained: bool = Field(description="whether the engine first serves other weights than version 0")
    steps: int = Field(ge=1, le=MAX_STEPS)
    refit: RefitKind | None = Field(default=None, description="the stack's own, until its manifest is read")
    engine_labels: bool = Field(
        default=True, description="whether the engine names a version itself; its workers alone may do so"
    )
    counts_cached_tokens: bool = Field(
        default=True, description="whether the engine's answers say how much of a prompt came from its prefix cache"
    )
    lora: bool = Field(default=False, description="whether engines take LoRA adapters, and are given one")
    tensor_parallel: tuple[PositiveInt, ...] = Field(
        default=(1,), min_length=1, description="ranks of each engine, in the order of the engines' names"
    )
    gpus: tuple[str, ...] = Field(default=(), description="one for each rank of the engines, then the trainer's")
    host: str = "127.0.0.1"
    namespace: str = "dynamo"
    ports: dict[str, int] = Field(default_factory=dict)
    tmp_dir: Path = Field(description="short scratch folder of this run (Unix socket names are limited to 107 bytes)")
    bucket_bytes: int = Field(default=64 * MIB, ge=1, description="of a Gloo refit")
    packing: Packing = Packing()
    rendezvous: Rendezvous = Field(default="tcp", description="how an NCCL group is made")
    max_model_len: int = 512
    probe_new_tokens: int = 8
    keep_up: bool = False
    headers: dict[str, str] = Field(
        default_factory=dict, description="names of the headers that every call carries, and where each value is from"
    )
    sabotage: str | None = Field(default=None, description="a fault that is made on purpose")
    serving: Literal["dynamo", "plain-vllm"] = Field(
        default="dynamo", description="what answers rollouts: the frontend, or the engine alone (a control)"
    )
    control: ControlKind | None = Field(default=None, description="what this run is to be compared with")
    trainer: Program | None = Field(default=None, description="the caller's own trainer, in the place of ours")
    deadlines: Deadlines = Deadlines()
    grpo: GrpoConfig = GrpoConfig()
    mismatch: MismatchBudget | None = Field(
        default=None, description="as the precision needs it, once that is known; or what the caller asked for"
    )

    @property
    def precision(self) -> Literal["float32", "bfloat16"]:
        """What the engines compute in, and what a refit brings."""
        return "bfloat16" if self.platform == "cuda" else "float32"

    @property
    def engines(self) -> int:
        return len(self.tensor_parallel)

    @property
    def world_size(self) -> int:
        """Ranks of all engines together, without the trainer."""
        return sum(self.tensor_parallel)
