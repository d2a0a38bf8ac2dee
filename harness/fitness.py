"""Whether the engines that were asked for can run: their ranks on this machine, and slices of this model.

Looked at once the model is there and before the first process is started. What cannot work is refused; what only takes
turns on the cores is told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.config import RunConfig
from harness.errors import UsageError
from harness.services.engine import CPU_KV_CACHE_GIB

GIB = 1024**3
RANK_GIB = 0.4
"""Memory of its own that a rank's process has beside weights and KV cache: no more than measured, so that what fits is
never refused."""

ENGINE_GIB = 0.85
"""The same of an engine's other processes, and of the sidecar."""

_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Machine:
    """What this process may use: cores, and bytes of memory that are free or can be freed."""

    cores: int
    memory: int

    @classmethod
    def here(cls, meminfo: Path = _MEMORY) -> Machine:
        (line,) = (line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        return cls(len(os.sched_getaffinity(0)), int(line.split()[1]) * 1024)


def require_bearable(config: RunConfig, machine: Machine | None = None) -> list[str]:
    """Raise UsageError for engines that cannot run. Returns what should be told of those that can."""
    if config.model_dir is None:
        raise ValueError("nothing can be said without the model's folder")
    for index, ranks in enumerate(config.tensor_parallel):
        _require_divisible(config.model_dir, index, ranks)
    # GPUs have cores and memory of their own, which are another module's to look at.
    return [] if config.platform == "cuda" else _on_cpu(config, config.model_dir, machine or Machine.here())


def _on_cpu(config: RunConfig, model: Path, machine: Machine) -> list[str]:
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    ranks = config.world_size
    needed = ranks * (CPU_KV_CACHE_GIB + RANK_GIB) * GIB + config.engines * (ENGINE_GIB * GIB + weights)
    if needed > machine.memory:
        raise UsageError(
            f"{ranks} ranks in engines of {list(config.tensor_parallel)} do not fit into this machine's memory",
            expected=f"at least {needed / GIB:.1f} GiB available: {CPU_KV_CACHE_GIB} GiB of KV cache a rank, one"
            f" copy of the weights ({weights / GIB:.1f} GiB) an engine, and the processes",
            found=f"{machine.memory / GIB:.1f} GiB",
            where=str(_MEMORY),
            hint="ask for fewer engines or ranks: --engines, --tensor-parallel, --engine",
        )
    if ranks > machine.cores > 0 and ranks > 1:
        return [f"{ranks} ranks on {machine.cores} cores take turns: starts, rollouts and refits take longer"]
    return []


def _require_divisible(model: Path, index: int, ranks: int) -> None:
    """vLLM gives every rank as many attention heads, and where that does not come out even it ends, long after."""
    wrong = [f"{count} {what}" for what, count, shared in _divided(model) if not _comes_out(count, ranks, shared)]
    if wrong:
        raise UsageError(
            f"engine-{index} cannot divide this model over {ranks} ranks",
            expected=f"numbers that {ranks} divides",
            found=", ".join(wrong),
            where=str(model / "config.json"),
            hint="choose another --tensor-parallel or --engine tp=RANKS",
        )


def _divided(model: Path) -> Iterator[tuple[str, int, bool]]:
    """What a rank has its share of, by the model's own configuration; whether ranks may share one as well."""
    try:
        told = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "the model's configuration cannot be read",
            expected="config.json, one JSON document, in the model's folder",
            found=str(error),
            where=str(model),
            hint="give a folder with a whole model as --model",
        ) from None
    for name, shared in (("num_attention_heads", False), ("num_key_value_heads", True), ("intermediate_size", False)):
        count = told.get(name) if isinstance(told, dict) else None
        if type(count) is int and count > 0:
            yield name.removeprefix("num_").replace("_", " "), count, shared


def _comes_out(count: int, ranks: int, shared: bool) -> bool:
    return count % ranks == 0 or (shared and ranks % count == 0)
