"""Which GPU is whose: each rank of the engines has one, in order, and the trainer has the last.

A GPU is named as `CUDA_VISIBLE_DEVICES` names it: by nvidia-smi's number, or by its uuid. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.config import RunConfig
from harness.errors import UsageError

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
OF_SMI = "PCI_BUS_ID"
"""The order in which nvidia-smi counts, whatever CUDA is told."""

TRAINER_GPUS = 1
_NAME = re.compile(r"\d{1,3}|GPU-[0-9a-fA-F-]{4,36}")


def parse(text: str) -> tuple[str, ...]:
    """`--gpus 0,1`. Raises ValueError for what names no GPU, and for one that is named twice."""
    names = tuple(part.strip() for part in text.split(","))
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} names no GPU: give nvidia-smi's numbers, such as 0,1, or GPU-… names")
    if len(set(names)) < len(names):
        raise ValueError("a GPU is named twice: NCCL takes no two ranks on one")
    return names


def assigned(asked: Sequence[str] | None, caller: Mapping[str, str], *, platform: str, ranks: int) -> tuple[str, ...]:
    """The GPUs of a run with `ranks` engine ranks: those asked for, else the first that the caller may see.

    Raises UsageError for a number of GPUs that does not fit, and for GPUs asked for a stack that has no use for them.
    """
    needed = ranks + TRAINER_GPUS
    if platform != "cuda":
        if asked is not None:
            raise UsageError(
                "--gpus: this stack runs without a GPU",
                expected="a stack for CUDA",
                found=",".join(asked),
                hint="leave --gpus out, or choose such a stack with --stack",
            )
        return ()
    if asked is not None:
        if len(asked) != needed:
            raise UsageError(
                f"--gpus {','.join(asked)}: the number of GPUs does not fit",
                expected=f"{needed}: one for each of {ranks} engine rank(s), and the trainer's",
                found=str(len(asked)),
                hint="give as many with --gpus, or fewer ranks: --engines, --tensor-parallel, --engine",
            )
        return tuple(asked)
    seen = caller.get(VISIBLE)
    names = [str(number) for number in range(needed)] if seen is None else [n.strip() for n in seen.split(",")]
    if len(names) < needed:
        raise UsageError(
            "fewer GPUs are visible than this run needs",
            expected=f"{needed}: one for each of {ranks} engine rank(s), and the trainer's",
            found=f"{VISIBLE}={seen}",
            hint=f"unset {VISIBLE}, or choose with --gpus",
        )
    if seen is not None:
        _require_order_of_smi(names[:needed], caller)
    return tuple(names[:needed])


def engine_gpus(config: RunConfig, index: int) -> tuple[str, ...]:
    """Those of engine `index`, one for each of its ranks."""
    first = sum(config.tensor_parallel[:index])
    return config.gpus[first : first + config.tensor_parallel[index]]


def trainer_gpus(config: RunConfig) -> tuple[str, ...]:
    return config.gpus[-TRAINER_GPUS:]


def visible(devices: Sequence[str]) -> dict[str, str]:
    """What lets a process see exactly `devices`; their numbers are nvidia-smi's."""
    return {VISIBLE: ",".join(devices), ORDER: OF_SMI}


def _require_order_of_smi(names: Sequence[str], caller: Mapping[str, str]) -> None:
    """The caller's numbers in another order would be other GPUs to nvidia-smi, which tells what is in use of them."""
    order = caller.get(ORDER) or OF_SMI
    numbers = [name for name in names if name.isdecimal()]
    if order != OF_SMI and numbers:
        raise UsageError(
            f"{VISIBLE} counts by {ORDER}={order}, and nvidia-smi does not",
            expected=f"{ORDER}={OF_SMI}, or names of GPUs in the place of numbers",
            found=f"{VISIBLE}={caller.get(VISIBLE)}",
            hint="choose with --gpus, which takes nvidia-smi's numbers and names (nvidia-smi -L)",
        )
