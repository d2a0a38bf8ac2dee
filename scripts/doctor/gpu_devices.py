"""Which GPUs a run gets: visible, enough of them, of an architecture that the engine is built for, in a fit mode.

Made from NVIDIA's documentation; not measured on hardware.
"""

from __future__ import annotations

import re

from scripts.doctor.gpu_smi import Gpu, for_gpu_stacks, for_gpus, see, visible
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

NEEDED = 2
"""One for the engine and one for the trainer, unless the run takes more."""

OF_THE_DRIVER = "/proc/driver/nvidia/gpus"
"""One folder for each GPU, also where nvidia-smi is missing."""

_WITHOUT = "./noxw -s smoke-cpu   # the same run without a GPU"
_ARCH = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")


def needed(subject: Subject) -> int:
    """How many GPUs the run takes: one for each rank of its engines, and the trainer's."""
    return subject.options.gpus or NEEDED


def _visible(subject: Subject) -> Finding:
    required = "CUDA_VISIBLE_DEVICES is unset, or names GPUs that there are"
    sight = see(subject)
    if not sight.gpus:
        return skip(f"no GPU to look at: {sight.problem}", "a driver that answers: see gpu.driver")
    chosen = visible(subject, sight.gpus)
    value = subject.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen.refused is not None:
        numbers = ", ".join(str(gpu.index) for gpu in sight.gpus)
        if chosen.refused.startswith("MIG-"):
            return fail(f"{value!r} names a slice of a GPU", f"{required}: whole GPUs", "unset CUDA_VISIBLE_DEVICES")
        return fail(
            f"{value!r}: {chosen.refused!r} names no GPU ({numbers} are there); CUDA sees {len(chosen.gpus)}",
            required,
            "unset CUDA_VISIBLE_DEVICES",
        )
    mixed = len({gpu.name for gpu in sight.gpus}) > 1
    if value and mixed and subject.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and "GPU-" not in value:
        return warn(
            f"{value!r} with GPUs of several kinds: CUDA counts the fastest first, nvidia-smi by slot",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID, so that a number means the same GPU everywhere",
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    shown = "unset" if value is None else repr(value)
    return ok(f"{shown}: {len(chosen.gpus)} of {len(sight.gpus)} GPUs", required)


def _count(subject: Subject) -> Finding:
    wanted = needed(subject)
    engines = "the engine" if wanted == NEEDED else f"each of {wanted - 1} engine ranks"
    required = f"{wanted} GPUs: one for {engines}, one for the trainer"
    sight = see(subject)
    if sight.kind in {"hung", "unread"}:
        return skip(f"they cannot be counted: {sight.problem}", required)
    if not sight.gpus:
        loaded = subject.machine.entries(OF_THE_DRIVER) or ()
        if len(loaded) >= wanted:
            return skip(f"the driver has {len(loaded)}, but {sight.problem}", required)
        return fail(f"{len(loaded) or 'no'} GPU", required, _WITHOUT)
    gpus = visible(subject, sight.gpus).gpus
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        return fail("CUDA_VISIBLE_DEVICES names a GPU twice", required, "unset CUDA_VISIBLE_DEVICES")
    if len(gpus) >= wanted:
        return ok(f"{len(gpus)} GPUs", required)
    there = len(sight.gpus)
    if there >= wanted:
        return fail(f"{len(gpus)} of {there} visible", required, "unset CUDA_VISIBLE_DEVICES")
    return fail(f"{len(gpus) or 'no visible'} GPU", required, _WITHOUT)


def _capability(subject: Subject, gpus: tuple[Gpu, ...]) -> Finding:
    archs = [str(arch) for arch in subject.stack.recipes.get("vllm", {}).get("cuda_archs", [])]
    if not archs:
        return skip("the stack file names no architectures that its engine is built for")
    required = f"an architecture that runs code for {', '.join(archs)}"
    unfit = [gpu for gpu in gpus[: needed(subject)] if not any(runs_on(gpu.capability, arch) for arch in archs)]
    if unfit:
        listed = ", ".join(f"{gpu} is {gpu.capability}" for gpu in unfit)
        name = subject.stack.name
        return fail(
            listed,
            required,
            f"./noxw -s build -- --stack {name} --only vllm   # "
            f'after adding "{unfit[0].capability}" to cuda_archs in stacks/{name}/stack.toml',
        )
    return ok(", ".join(f"{gpu} is {gpu.capability}" for gpu in gpus[: needed(subject)]), required)


def runs_on(capability: str, arch: str) -> bool:
    """Whether a GPU of this capability runs what is compiled for `arch`, as `TORCH_CUDA_ARCH_LIST` writes it.

    Machine code runs on the same major release from its minor one on; with the suffix a on exactly that GPU, with f on
    its family. PTX is compiled again for every newer GPU.
    """
    wanted, found = _ARCH.fullmatch(arch), _ARCH.fullmatch(capability)
    if wanted is None or found is None:
        return False
    built, have = (int(wanted[1]), int(wanted[2])), (int(found[1]), int(found[2]))
    if wanted[3] == "a":
        return have == built
    if wanted[4] and not wanted[3]:
        return have >= built
    return have[0] == built[0] and have >= built


def _modes(subject: Subject, gpus: tuple[Gpu, ...]) -> Finding:
    required = "compute mode Default, no MIG"
    used = gpus[: needed(subject)]
    facts = "; ".join(
        f"GPU {gpu.index}: {gpu.compute_mode}, MIG {gpu.mig}, persistence {gpu.persistence}, ECC {gpu.ecc}"
        for gpu in used
    )
    closed = [gpu for gpu in used if gpu.compute_mode == "Prohibited"]
    if closed:
        return fail(facts, required, _for_each(closed, "-c DEFAULT"))
    sliced = [gpu for gpu in used if gpu.mig == "Enabled"]
    if sliced:
        return warn(f"{facts}; slices cannot talk to each other over NCCL", required, _for_each(sliced, "-mig 0"))
    alone = [gpu for gpu in used if gpu.compute_mode.startswith("Exclusive")]
    if alone:
        return warn(f"{facts}; a second process on a GPU is refused", required, _for_each(alone, "-c DEFAULT"))
    return ok(facts, required)


def _for_each(gpus: list[Gpu], option: str) -> str:
    return f"sudo nvidia-smi -i {','.join(str(gpu.index) for gpu in gpus)} {option}"


CHECKS = (
    Check(
        id="gpu.visible-devices",
        title="visible GPUs",
        group="gpu",
        why="a run passes CUDA_VISIBLE_DEVICES on to the engine and the trainer",
        symptom="fewer GPUs than the machine has, or none: `invalid device ordinal`",
        cause="CUDA ignores everything after the first entry that names no GPU",
        looks_at="CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, against nvidia-smi's list",
        fix="unset CUDA_VISIBLE_DEVICES",
        reference="https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html",
        needed_for=("run",),
        look=for_gpu_stacks(_visible),
    ),
    Check(
        id="gpu.count",
        title="number of GPUs",
        group="gpu",
        why="engine and trainer need one each: NCCL refuses two ranks on one GPU",
        symptom="`Duplicate GPU detected`, or out of memory as soon as the trainer starts",
        cause="the machine, its scheduler or CUDA_VISIBLE_DEVICES gives fewer than two",
        looks_at="nvidia-smi's list, less what CUDA_VISIBLE_DEVICES hides",
        fix="unset CUDA_VISIBLE_DEVICES   # or, without a GPU: ./noxw -s smoke-cpu",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html",
        needed_for=("run",),
        look=for_gpu_stacks(_count),
    ),
    Check(
        id="gpu.architecture",
        title="GPU architecture",
        group="gpu",
        why="a source build has kernels for the architectures of the stack file only",
        symptom="`no kernel image is available for execution on the device`, at the first kernel",
        cause="the GPU is not among `cuda_archs` of the stack file",
        looks_at="nvidia-smi's compute capability, against `cuda_archs`",
        fix="${EDITOR:-vi} stacks/NAME/stack.toml   # [recipes.vllm] cuda_archs, then: ./noxw -s build -- --only vllm",
        reference="https://github.com/vllm-project/vllm/issues/8665",
        needed_for=("run",),
        look=for_gpus(_capability),
        rows=(14,),
    ),
    Check(
        id="gpu.modes",
        title="compute mode, MIG, ECC",
        group="gpu",
        why="some modes let no process, or only one, onto a GPU; the rest is for the record",
        symptom="`all CUDA-capable devices are busy or unavailable`",
        cause="an administrator has set an exclusive mode, or has cut the GPU into MIG slices",
        looks_at="nvidia-smi: compute mode, MIG, persistence, ECC",
        fix="sudo nvidia-smi -i INDEX -c DEFAULT   # or: sudo nvidia-smi -i INDEX -mig 0",
        reference="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
        needed_for=("run",),
        look=for_gpus(_modes),
    ),
)
