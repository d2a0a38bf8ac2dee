"""What the GPUs' memory is taken by, and whether enough is left. Other programs are named without their arguments.

Made from the documented output of nvidia-smi; not measured on hardware.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scripts.doctor.gpu_devices import needed
from scripts.doctor.gpu_smi import LATER_LIMIT_S, PROGRAM, Gpu, for_gpus, see
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.runtime_runs import living
from scripts.doctor.subject import Subject

ENGINE_SHARE = 0.9
"""The part of a GPU's memory that vLLM claims unless it is told otherwise, and must find free when it starts."""

UNEXPLAINED_MIB = 1024
"""More than a driver and a display keep for themselves."""

_APPS = (PROGRAM, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class App:
    """A process on a GPU; memory in MiB, None when the driver does not tell it."""

    gpu: Gpu
    pid: int
    program: str
    used: int | None

    def __str__(self) -> str:
        amount = "unknown memory" if self.used is None else f"{self.used} MiB"
        return f"GPU {self.gpu.index}: pid {self.pid} ({self.program}) has {amount}"


def _free(subject: Subject, gpus: tuple[Gpu, ...]) -> Finding:
    required = f"{ENGINE_SHARE:.0%} of each GPU's memory free"
    used = gpus[: needed(subject)]
    if any(_share(gpu) is None for gpu in used):
        return skip("the driver does not tell how much memory these GPUs have", required)
    facts = ", ".join(f"GPU {gpu.index}: {_free_mib(gpu)} of {gpu.total} MiB free" for gpu in used)
    taken = [gpu for gpu in used if not _is_free(gpu)]
    if not taken:
        return ok(facts, required)
    holders = _holders(subject, used)
    facts = "; ".join([facts, *holders])
    fix = _others(subject, see(subject).gpus)
    # All but the last are the engines': vLLM refuses to start. A trainer that gets less may still do.
    return fail(facts, required, fix) if taken[0] in used[: needed(subject) - 1] else warn(facts, required, fix)


def _holders(subject: Subject, gpus: Sequence[Gpu]) -> list[str]:
    """Who has memory of these GPUs, as far as nvidia-smi tells it."""
    answer = subject.ask(*_APPS, limit_s=LATER_LIMIT_S)
    if not answer.good:
        return []
    return [str(app) for line in answer.output.splitlines() if (app := _app(subject, line, gpus)) is not None]


def _free_mib(gpu: Gpu) -> int:
    return (gpu.total or 0) - (gpu.used or 0)


def _share(gpu: Gpu) -> float | None:
    return None if not gpu.total or gpu.used is None else _free_mib(gpu) / gpu.total


def _is_free(gpu: Gpu) -> bool:
    share = _share(gpu)
    return share is not None and share >= ENGINE_SHARE


def _others(subject: Subject, gpus: Iterable[Gpu]) -> str:
    """Name as many free GPUs as the run takes, where there are some, else how to see who has them."""
    free = [str(gpu.index) for gpu in gpus if _is_free(gpu)]
    if len(free) >= needed(subject):
        return f"export CUDA_VISIBLE_DEVICES={','.join(free[: needed(subject)])}   # these are free"
    if any(run.pids for run in living(subject) if not run.owned):
        return "./noxw -s down -- --all-runs   # a stack of an earlier run is still up"
    return "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv   # who has it"


def _processes(subject: Subject, gpus: tuple[Gpu, ...]) -> Finding:
    required = "nobody else on the GPUs of a run"
    answer = subject.ask(*_APPS, limit_s=LATER_LIMIT_S)
    if not answer.good:
        return skip(f"{PROGRAM} does not list processes: {answer.in_short}", required)
    used = gpus[: needed(subject)]
    apps = [app for app in (_app(subject, line, used) for line in answer.output.splitlines()) if app is not None]
    gone = [app for app in apps if not subject.machine.exists(f"/proc/{app.pid}")]
    ours = {pid: run for run in living(subject) for pid in run.pids}
    if gone:
        shown = "; ".join(map(str, gone))
        return warn(
            f"{shown}, and is no process here: of another container, or dead and not let go of", required, _USERS
        )
    if any(app.pid in ours and not ours[app.pid].owned for app in apps):
        return warn("; ".join(map(str, apps)), required, "./noxw -s down -- --all-runs   # engines of an earlier run")
    if apps:
        pids = ",".join(str(app.pid) for app in apps)
        return warn("; ".join(map(str, apps)), required, f"ps -o user,pid,etime,comm -p {pids}   # whose they are")
    silent = [gpu for gpu in used if (gpu.used or 0) >= UNEXPLAINED_MIB]
    if silent:
        shown = ", ".join(f"GPU {gpu.index}: {gpu.used} MiB in use" for gpu in silent)
        return warn(f"{shown}, but no process is listed: it may be in another container", required, _USERS)
    return ok("no process", required)


_USERS = "sudo fuser -v /dev/nvidia*   # on the host, lists who has the GPUs open"


def _app(subject: Subject, line: str, gpus: Sequence[Gpu]) -> App | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 4 or not cells[1].isdecimal():
        return None
    uuid, pid, name, used = cells
    gpu = next((gpu for gpu in gpus if gpu.uuid == uuid), None)
    if gpu is None:
        return None
    shown = (subject.machine.read_text(f"/proc/{pid}/comm") or "").strip() or _program(name)
    return App(gpu, int(pid), shown, int(used) if used.isdecimal() else None)


def _program(name: str) -> str:
    """The first word's last part: the driver may tell a whole command line."""
    return os.path.basename(name.split(" ", maxsplit=1)[0]) or "unknown"  # noqa: PTH119 - a text of the driver


CHECKS = (
    Check(
        id="gpu.memory",
        title="free GPU memory",
        group="gpu",
        why="vLLM claims 90 % of its GPU's memory at its start, and ends when less is free",
        symptom="`Free memory on device … is less than desired GPU memory utilization`, or CUDA out of memory",
        cause="another program, or an engine that outlived its server, holds the memory",
        looks_at="nvidia-smi: memory in all and in use, of the GPUs that a run would take",
        fix="./noxw -s down -- --all-runs   # engines of earlier runs; else end what nvidia-smi lists",
        reference="https://github.com/vllm-project/vllm/issues/43060",
        needed_for=("run",),
        look=for_gpus(_free),
        rows=(28,),
    ),
    Check(
        id="gpu.processes",
        title="others on the GPUs",
        group="gpu",
        why="who else computes there takes memory and time from the run, and is not the run's to end",
        symptom="GPU memory that stays in use when everything seems to have ended",
        cause="an orphaned EngineCore: it survives the SIGKILL of the server that started it",
        looks_at="nvidia-smi's processes, /proc for their names, runs/*/stack.json for those of earlier runs",
        fix="./noxw -s down -- --all-runs   # it lists before it stops",
        reference="https://github.com/vllm-project/vllm/issues/55510",
        needed_for=("run",),
        look=for_gpus(_processes),
        rows=(28,),
    ),
)
