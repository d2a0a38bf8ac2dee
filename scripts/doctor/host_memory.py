"""Group host: memory and processors, against what a build or a run takes. The numbers of jobs are those of `jobs`."""

from __future__ import annotations

from scripts import jobs
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject
from scripts.jobs import GIB

RUN_CPU = 4 * GIB
"""A smoke run on the CPU with the tiny model: at most 3.0 GiB were seen in use by its processes together."""

RUN_CUDA = 16 * GIB
"""Host memory beside the GPUs' own: an estimate, not measured."""

FEW_CORES = 2
SWAP_HELPS_BELOW = 64 * GIB
MAKE_SWAP = "sudo sh -c 'fallocate -l 16G /swapfile && chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile'"


def compiling(subject: Subject) -> str:
    """What the heaviest compiler of the stack's builds is, as `jobs.PER_JOB` names it."""
    return "cuda" if subject.stack.recipes.get("vllm", {}).get("device") == "cuda" else "c++"


def gib(size: float) -> str:
    """`3.5 GiB`."""
    return f"{size / GIB:.1f} GiB"


def _memory(subject: Subject) -> Finding:
    needs = {}
    if subject.asks_for("run"):
        needs["to run"] = RUN_CUDA if subject.stack.cuda else RUN_CPU
    if subject.asks_for("build") and subject.stack.from_source:
        needs["for one compiler"] = jobs.PER_JOB[compiling(subject)] + jobs.RESERVE
    if not needs:
        return skip("nothing here takes much memory")
    required = ", ".join(f"{gib(need)} {what}" for what, need in needs.items())
    free = subject.machine.resources().memory
    found = f"{gib(free)} free{_bound_by(subject, free)}"
    if free < max(needs.values()):
        return fail(
            found, required, "ps -eo pid,rss,args --sort=-rss | head   # end what is not needed, or raise the limit"
        )
    return ok(found, required)


def _bound_by(subject: Subject, free: int) -> str:
    """Says so when a control group, and not the machine, is what bounds it."""
    meminfo = subject.machine.read_text("/proc/meminfo") or ""
    return " under a control group's limit" if free < _meminfo(meminfo, "MemAvailable") * 0.95 else ""


def _meminfo(text: str, name: str) -> int:
    line = next((line for line in text.splitlines() if line.startswith(f"{name}:")), "")
    return int(line.split()[1]) * 1024 if line else 0


def _swap(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    meminfo = subject.machine.read_text("/proc/meminfo") or ""
    total, swap = _meminfo(meminfo, "MemTotal"), _meminfo(meminfo, "SwapTotal")
    required = f"swap, or {gib(SWAP_HELPS_BELOW)} of memory"
    if swap or total >= SWAP_HELPS_BELOW:
        return ok(f"{gib(swap)} of swap, {gib(total)} of memory", required)
    return warn(f"no swap, {gib(total)} of memory: a short peak ends a compiler", required, MAKE_SWAP)


def _cores(subject: Subject) -> Finding:
    required = f"{FEW_CORES} cores or more"
    cores, affinity = subject.machine.resources().cores, subject.machine.cores()
    found = f"{cores} of {affinity} under a control group's limit" if cores < affinity else str(cores)
    if cores < FEW_CORES:
        fix = "nproc; cat /sys/fs/cgroup/cpu.max   # give the container or the VM more, e.g. docker run --cpus 4"
        return warn(f"{found}: services start one after the other, near their deadlines", required, fix)
    return ok(found, required)


def chosen_jobs(subject: Subject) -> jobs.Jobs:
    """What the build would use on this machine, with what was asked for."""
    archs = subject.stack.recipes.get("vllm", {}).get("cuda_archs", ())
    return jobs.choose(
        subject.machine.resources(),
        kind=compiling(subject),
        gpu_archs=len(archs),
        override=subject.options.jobs,
    )


def _jobs(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    chosen, each = chosen_jobs(subject), jobs.PER_JOB[compiling(subject)]
    free = subject.machine.resources().memory
    required = f"{gib(each)} of memory for each compiler (a rule of thumb)"
    found = (
        f"MAX_JOBS={chosen.compilers} NVCC_THREADS={chosen.nvcc_threads} CARGO_BUILD_JOBS={chosen.rust}"
        f" ({chosen.limit}): {chosen.nvccs} at once"
    )
    if chosen.compilers * each > free:
        fitting = max(1, (free - jobs.RESERVE) // each)
        purpose = f"./noxw -s build -- --stack {subject.stack.name} --jobs {fitting}"
        return warn(f"{found}, for which {gib(free)} may not do", required, purpose)
    return ok(found, required)


CHECKS = (
    Check(
        id="host.memory",
        title="memory",
        group="host",
        why="what does not fit is killed by the kernel, without a word in its log",
        symptom="Killed, exit status 137 or signal 9, in a build or while the engine starts",
        cause="too little free memory, or a container's limit that free(1) does not show",
        looks_at="MemAvailable, and the limits and the use of the control groups, version 1 and 2",
        fix="ps -eo pid,rss,args --sort=-rss | head   # end what is not needed, or raise the limit",
        reference="https://github.com/vllm-project/vllm/issues/3180",
        needed_for=("build", "run"),
        look=_memory,
        rows=(1,),
    ),
    Check(
        id="host.swap",
        title="swap",
        group="host",
        why="a linker or nvcc takes far more than the average for a short while",
        symptom="one compiler of many is killed at the end of a long build",
        cause="no swap to take a short peak",
        looks_at="SwapTotal and MemTotal of /proc/meminfo",
        fix=MAKE_SWAP,
        reference="https://github.com/vllm-project/vllm/issues/14452",
        needed_for=("build",),
        look=_swap,
        rows=(1,),
    ),
    Check(
        id="host.cores",
        title="processors",
        group="host",
        why="engine, frontend, sidecar and trainer start and work at the same time",
        symptom="a service is not ready within its deadline",
        cause="one core, or a container's quota that nproc does not show",
        looks_at="the affinity, cpu.max and cpu.cfs_quota_us of the control groups",
        fix="docker run --cpus 4 …   # or a machine with more",
        reference="https://docs.kernel.org/admin-guide/cgroup-v2.html",
        needed_for=("build", "run"),
        look=_cores,
    ),
)

BUILD_CHECKS = (
    Check(
        id="build.jobs",
        title="parallel jobs",
        group="build",
        why="each compiler takes gigabytes, and vLLM divides MAX_JOBS by NVCC_THREADS",
        symptom="the compiler is killed, or fewer jobs run than were asked for",
        cause="as many jobs as cores without regard to memory; the division by NVCC_THREADS",
        looks_at="memory, cores, --jobs and the recipe's GPU architectures, by the rule that the build uses",
        fix="./noxw -s build -- --stack NAME --jobs N",
        reference="https://github.com/vllm-project/vllm/issues/20079",
        needed_for=("build",),
        look=_jobs,
        rows=(1, 2),
    ),
)
