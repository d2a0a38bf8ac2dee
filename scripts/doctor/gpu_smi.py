"""nvidia-smi, asked and read: the GPUs of this machine, those that a run would see, or why none can be seen.

Holds no check. Made from the documented output of nvidia-smi; not measured on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from scripts.doctor.registry import Finding, skip
from scripts.doctor.subject import Subject

PROGRAM = "nvidia-smi"
_FIELDS = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "compute_cap"),
    *("mig.mode.current", "compute_mode", "persistence_mode", "ecc.mode.current"),
)
QUERY = (PROGRAM, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
LIMIT_S = 5.0
"""For the first question. Without persistence mode the driver starts for each question, which takes seconds."""

LATER_LIMIT_S = 1.9
"""For each further one, of which a check puts two at most: all must fit into the doctor's time."""

KERNEL_MODULE = "/proc/driver/nvidia/version"
_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_NO_DEVICE = frozenset({"", "-1", "none", "void", "NoDevFiles"})


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi tells of it. Memory in MiB, None where the GPU has none of its own."""

    index: int
    uuid: str
    name: str
    driver: str
    total: int | None
    used: int | None
    capability: str
    mig: str
    compute_mode: str
    persistence: str
    ecc: str

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


@dataclass(frozen=True)
class Sight:
    """The GPUs, or why there are none to be seen.

    `kind` is `seen`, `absent` (no such program), `hung` (no answer), `refused` (it ended with an error) or `unread` (an
    answer that is none).
    """

    kind: str
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


def see(subject: Subject) -> Sight:
    """Ask nvidia-smi once; all checks share the answer."""
    if subject.which(PROGRAM) is None:
        return Sight("absent", problem=f"there is no {PROGRAM} on PATH")
    answer = subject.ask(*QUERY, limit_s=LIMIT_S)
    if answer.status is None:
        return Sight("hung", problem=answer.in_short)
    if not answer.good:
        return Sight("refused", problem=f"{PROGRAM} {answer.in_short}")
    lines = [line for line in answer.output.splitlines() if line.strip()]
    gpus = [_gpu(line) for line in lines]
    if "No devices were found" in answer.output:
        return Sight("refused", problem=f"{PROGRAM} says: No devices were found")
    if not lines or any(gpu is None for gpu in gpus):
        said = lines[0][:120] if lines else "nothing"
        return Sight("unread", problem=f"{PROGRAM} answered something else than asked: {said}")
    return Sight("seen", tuple(gpu for gpu in gpus if gpu is not None))


def _gpu(line: str) -> Gpu | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_FIELDS) or not cells[0].isdecimal():
        return None
    index, uuid, name, driver, total, used, *rest = cells
    return Gpu(int(index), uuid, name, driver, _mebibytes(total), _mebibytes(used), *rest)


def _mebibytes(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def driver_version(subject: Subject) -> str | None:
    """Of the loaded kernel module; where /proc does not tell it, as nvidia-smi does."""
    found = _MODULE_VERSION.search(subject.machine.read_text(KERNEL_MODULE) or "")
    if found:
        return found.group(1)
    gpus = see(subject).gpus
    return gpus[0].driver if gpus else None


@dataclass(frozen=True)
class Choice:
    """What `CUDA_VISIBLE_DEVICES` leaves. `refused` is the first entry that names no GPU: CUDA stops reading there."""

    gpus: tuple[Gpu, ...]
    refused: str | None = None


def visible(subject: Subject, gpus: tuple[Gpu, ...]) -> Choice:
    """The GPUs that a program of this environment would see, in its order."""
    chosen = subject.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return Choice(gpus)
    found: list[Gpu] = []
    for entry in (part.strip() for part in chosen.split(",")):
        match = next((gpu for gpu in gpus if _names(entry, gpu)), None)
        if match is None:
            return Choice(tuple(found), entry)
        found.append(match)
    return Choice(tuple(found))


def _names(entry: str, gpu: Gpu) -> bool:
    if entry in _NO_DEVICE:
        return False
    return entry == str(gpu.index) or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))


def for_gpu_stacks(look: Callable[[Subject], Finding]) -> Callable[[Subject], Finding]:
    """`look`, but only for a stack that runs on GPUs."""

    def guarded(subject: Subject) -> Finding:
        if not subject.stack.cuda:
            return skip(f"the stack {subject.stack.name} runs without a GPU")
        return look(subject)

    return guarded


def for_gpus(look: Callable[[Subject, tuple[Gpu, ...]], Finding]) -> Callable[[Subject], Finding]:
    """`look` with the GPUs that a run would see, where there are some. Why there are none is told by other checks."""

    def guarded(subject: Subject) -> Finding:
        sight = see(subject)
        if not sight.gpus:
            return skip(f"no GPU to look at: {sight.problem}", "a driver that answers: see gpu.driver")
        chosen = visible(subject, sight.gpus).gpus
        if not chosen:
            return skip("CUDA_VISIBLE_DEVICES hides every GPU", "a visible GPU: see gpu.visible-devices")
        return look(subject, chosen)

    return for_gpu_stacks(guarded)
