"""What the harness tells the trainer: the configuration file and the plan, read strictly. Imports no torch.

Nothing has a default here: the run's configuration decides every value, and `config.json` of the run shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from smokestack_payload.calls import Carried
from smokestack_payload.errors import ProtocolError

T = TypeVar("T")


@dataclass(frozen=True)
class GrpoSettings:
    """Hyperparameters; counts are per optimizer step. `clip_low` and `clip_high` bound the ratio around 1."""

    prompts_per_step: int
    group_size: int
    max_new_tokens: int
    temperature: float
    learning_rate: float
    clip_low: float
    clip_high: float
    seed: int

    def __post_init__(self) -> None:
        if self.temperature != 1.0:
            raise ProtocolError(
                "this temperature cannot be trained on",
                expected="1.0: the engine reports log-probabilities before temperature, the ratio needs those after it",
                found=str(self.temperature),
                where="grpo.temperature",
            )
        if self.prompts_per_step < 1 or self.group_size < 2 or self.max_new_tokens < 1:
            raise ProtocolError(
                "a GRPO step needs groups to compare",
                expected="prompts_per_step >= 1, group_size >= 2, max_new_tokens >= 1",
                found=f"{self.prompts_per_step}, {self.group_size}, {self.max_new_tokens}",
                where="grpo",
            )


@dataclass(frozen=True)
class DeadlineSettings:
    """Seconds granted to one request, the rendezvous, one refit, one optimizer step with its rollouts."""

    request_s: float
    rendezvous_s: float
    refit_s: float
    step_s: float


@dataclass(frozen=True)
class PackingSettings:
    """How an NCCL refit packs tensors: `buffers` of `buffer_bytes` on each end."""

    packed: bool
    buffer_bytes: int
    buffers: int

    def __post_init__(self) -> None:
        if self.buffer_bytes < 1 or self.buffers < 1:
            raise ProtocolError(
                "packing needs room",
                expected="buffer_bytes >= 1, buffers >= 1",
                found=f"{self.buffer_bytes}, {self.buffers}",
                where="packing",
            )


@dataclass(frozen=True)
class TrainerSettings:
    """The configuration file. Without a `warm_cache`, the weights of `model_dir` are version 0 as they are.

    `refit` names a protocol of `refit.protocols`, `backend` what carries the weights; `engine_label` says whether the
    engine's front end has a version label of its own. `precision` is what the engines compute in and a refit brings;
    `transfer` is the interface of vLLM's trainer side, `trainer-engine` or `static-helpers`; `rendezvous` how an NCCL
    group is made, `tcp` or `unique-id`. Checkpoints, where `refit` goes through any, lie in `checkpoints`. `adapter` is
    the folder of the LoRA adapter that engines are to load at the end, if any. `sabotage` names a fault of `sabotage`;
    `smoke --sabotage`, `selftest` and tests set it.
    """

    model_dir: Path
    warm_cache: Path | None
    device: str
    steps: int
    seed: int
    bucket_bytes: int
    grpo: GrpoSettings
    deadlines: DeadlineSettings
    refit: str
    backend: str
    transfer: str
    packing: PackingSettings
    rendezvous: str
    engine_label: bool
    checkpoints: Path
    adapter: Path | None
    precision: str
    probe_new_tokens: int
    sabotage: str | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> TrainerSettings:
        values = _known(cls, raw, "configuration")
        values["grpo"] = GrpoSettings(**_known(GrpoSettings, values["grpo"], "grpo"))
        values["deadlines"] = DeadlineSettings(**_known(DeadlineSettings, values["deadlines"], "deadlines"))
        values["packing"] = PackingSettings(**_known(PackingSettings, values["packing"], "packing"))
        values["model_dir"] = Path(values["model_dir"])
        values["checkpoints"] = Path(values["checkpoints"])
        values["adapter"] = None if values["adapter"] is None else Path(values["adapter"])
        values["warm_cache"] = None if values["warm_cache"] is None else Path(values["warm_cache"])
        return cls(**values)


@dataclass(frozen=True)
class EngineAddress:
    """One engine: where its admin routes are, how many workers it has, and the group rank of its first one."""

    admin_url: str
    world_size: int
    rank_offset: int


@dataclass(frozen=True)
class Cut:
    """`start` (included) to `stop` along dimension `dim` of a whole parameter: what one rank of an engine has of it."""

    dim: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Slice:
    """A slice of the parameter `name` whose digest the harness wants, since a rank has no more of it."""

    name: str
    cut: Cut


@dataclass(frozen=True)
class Plan:
    """Where the running stack is. `world_size` counts the trainer and all workers of all engines."""

    frontend_url: str
    served_model_name: str
    engines: tuple[EngineAddress, ...]
    world_size: int
    master_address: str
    master_port: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    header_sources: Mapping[str, str] = field(default_factory=dict)
    slices: tuple[Slice, ...] = ()

    @property
    def carried(self) -> Carried:
        """What every admin and rollout call carries."""
        return Carried(self.headers, self.header_sources)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Plan:
        values = _known(cls, {key: value for key, value in raw.items() if key != "command"}, "plan")
        values["engines"] = tuple(
            EngineAddress(
                **{**_known(EngineAddress, engine, "plan.engines"), "admin_url": engine["admin_url"].rstrip("/")}
            )
            for engine in values["engines"]
        )
        values["slices"] = tuple(_slice(one) for one in values.get("slices", ()))
        if not values["engines"]:
            raise ProtocolError("the plan names no engine", expected="at least one", found="[]", where="plan.engines")
        return cls(**values)


def _slice(raw: Any) -> Slice:
    values = _known(Slice, raw, "plan.slices")
    return Slice(values["name"], Cut(**_known(Cut, values["cut"], "plan.slices.cut")))


def _known(cls: type[Any], raw: Any, where: str) -> dict[str, Any]:
    """`raw` as keyword arguments for `cls`; every key known, every required key there."""
    if not isinstance(raw, Mapping):
        raise ProtocolError(
            f"{where} is not an object", expected="a JSON object", found=type(raw).__name__, where=where
        )
    allowed = {item.name for item in fields(cls)}
    required = {item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING}
    unknown, missing = sorted(set(raw) - allowed), sorted(required - set(raw))
    if unknown or missing:
        raise ProtocolError(
            f"{where} does not have the fields it should",
            expected=f"required: {sorted(required)}; allowed: {sorted(allowed)}",
            found=f"missing: {missing}; unknown: {unknown}",
            where=where,
        )
    return dict(raw)
