"""Whether the two GPUs of a run reach each other, and by which way, as the driver tells it.

Made from the documented output of nvidia-smi; not measured on hardware.
"""

from __future__ import annotations

import re

from scripts.doctor.gpu_devices import NEEDED
from scripts.doctor.gpu_smi import LATER_LIMIT_S, PROGRAM, Gpu, for_gpus
from scripts.doctor.registry import Check, Finding, ok, skip, warn
from scripts.doctor.subject import Subject

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MEANING = {
    "CNS": "not supported by the chipset",
    "GNS": "not supported by the GPU",
    "TNS": "not supported by the way between them",
    "NS": "not supported",
    "DR": "switched off in the driver",
    "U": "unknown",
}


def matrix(text: str) -> dict[tuple[int, int], str]:
    """(row, column) -> cell of a table of `nvidia-smi topo`, for its GPUs; empty when there is no such table."""
    columns: list[int] = []
    found: dict[tuple[int, int], str] = {}
    for line in _COLOUR.sub("", text).splitlines():
        cells = line.split()
        if not cells or not _is_gpu(cells[0]):
            continue
        if not columns:
            columns = [int(cell[3:]) for cell in cells if _is_gpu(cell)]
            continue
        found.update({(int(cells[0][3:]), column): cell for column, cell in zip(columns, cells[1:])})  # noqa: B905
    return found


def _is_gpu(text: str) -> bool:
    return text.startswith("GPU") and text[3:].isdecimal()


def _peers(subject: Subject, gpus: tuple[Gpu, ...]) -> Finding:
    required = "two GPUs that may read each other's memory"
    if len(gpus) < NEEDED:
        return skip("there is only one GPU", required)
    answer = subject.ask(PROGRAM, "topo", "-p2p", "r", limit_s=LATER_LIMIT_S)
    access = matrix(answer.output) if answer.good else {}
    first, second = gpus[0].index, gpus[1].index
    cell = access.get((first, second))
    if cell is None:
        return skip(f"{PROGRAM} does not tell: {answer.in_short}", required)
    links = matrix(subject.ask(PROGRAM, "topo", "-m", limit_s=LATER_LIMIT_S).output)
    way = links.get((first, second), "unknown")
    if cell == "OK":
        return ok(f"GPU {first} and GPU {second}: yes, over {way}", required)
    why = _MEANING.get(cell, "not known to this program")
    found = f"GPU {first} and GPU {second}: no ({cell}: {why}), way {way}; NCCL copies through /dev/shm, slower"
    pairs = [pair for pair, other in sorted(access.items()) if other == "OK"]
    if pairs:
        chosen = ",".join(map(str, pairs[0]))
        return warn(found, required, f"export CUDA_VISIBLE_DEVICES={chosen}   # these two can")
    return warn(found, required, "df -h /dev/shm   # must have 1 GiB: NCCL copies through it")


CHECKS = (
    Check(
        id="gpu.peer-access",
        title="GPU to GPU",
        group="gpu",
        why="without peer access every byte of a refit goes through the host's shared memory",
        symptom="`NCCL error: unhandled system error`, or a refit that is slow",
        cause="no NVLink and a chipset, a virtual machine or an IOMMU that does not let the GPUs reach each other",
        looks_at="nvidia-smi topo -p2p r and nvidia-smi topo -m",
        fix="export CUDA_VISIBLE_DEVICES=A,B   # two that can; or NCCL_P2P_DISABLE=1, on both sides",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        needed_for=("run",),
        look=for_gpus(_peers),
        rows=(31,),
    ),
)
