"""How many compilers may work side by side: from memory as well as cores, the limits of control groups included.

One nvcc or cc1plus takes several GB; as many of them as there are cores is how builds are killed. Standard library
only, and importable by Python 3.9: the doctor gives the same number as the build uses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

GIB = 1 << 30

PER_JOB = {"cuda": 5 * GIB, "c++": 3 * GIB, "rust": 2 * GIB}
"""Memory that one compiler is given: a rule of thumb from public reports of killed builds, not measured here."""

RESERVE = 1 * GIB
"""Left to everything else on the machine."""


@dataclass(frozen=True)
class Resources:
    """What a build may use: `cores`, and `memory` in bytes, with the control group's limits taken off."""

    cores: int
    memory: int


@dataclass(frozen=True)
class Jobs:
    """Compilers side by side. `nvcc_threads` are within one nvcc: vLLM divides `MAX_JOBS` by them.

    `limit` says what the number comes from.
    """

    compilers: int
    nvcc_threads: int
    rust: int
    limit: str

    @property
    def nvccs(self) -> int:
        """The processes that vLLM then starts side by side."""
        return max(1, self.compilers // self.nvcc_threads)


def choose(resources: Resources, *, kind: str, gpu_archs: int = 0, override: Optional[int] = None) -> Jobs:  # noqa: UP045
    """The number of jobs for a machine. `kind` is one of `PER_JOB`; `override` is the user's, and wins."""
    if override is not None:
        return Jobs(override, _threads(gpu_archs, override), override, "asked for")
    compilers, limit = _fitting(resources, kind)
    rust, _ = _fitting(resources, "rust")
    threads = _threads(gpu_archs, compilers)
    return Jobs(compilers // threads * threads, threads, rust, limit)


def fewer(jobs: Jobs) -> int:
    """The number to try after a build was killed for lack of memory."""
    return max(1, max(jobs.compilers, jobs.rust) // 2)


def available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Resources:
    """What this process may use now: memory that can be had without swapping, cores that it may run on."""
    memory, cores = [_mem_available(proc / "meminfo")], [float(len(os.sched_getaffinity(0)))]
    for folder in _group_folders(proc / "self" / "cgroup", groups):
        memory += _memory_left(folder)
        cores += _cpu_quota(folder)
    return Resources(max(1, int(min(cores))), min(memory))


def _fitting(resources: Resources, kind: str) -> tuple[int, str]:
    by_memory = max(1, (resources.memory - RESERVE) // PER_JOB[kind])
    if by_memory < resources.cores:
        have, each = resources.memory / GIB, PER_JOB[kind] / GIB
        return by_memory, f"memory: {have:.1f} GiB free, {each:g} GiB for each"
    return resources.cores, f"cores: {resources.cores}"


def _threads(gpu_archs: int, compilers: int) -> int:
    """nvcc's own threads compile for several architectures at once; with one there is nothing to share out."""
    return max(1, min(2, gpu_archs, compilers))


def _mem_available(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{meminfo} has no MemAvailable")


def _group_folders(membership: Path, groups: Path) -> list[Path]:
    """The folders of this process's control groups and of all above them: each may set a limit.

    Version 2 has one hierarchy; version 1 has one per controller. Inside a container the path that `membership`
    names may not exist, as the container's own group is mounted at the top.
    """
    folders = []
    # A kernel without control groups has no such file, and no limits.
    text = membership.read_text(encoding="utf-8") if membership.exists() else ""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        names = [name for name in controllers.split(",") if name in {"memory", "cpu", ""}]
        for name in names:
            top = groups / name if name else groups
            parts = [part for part in path.split("/") if part and part != ".."]
            folders += [top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]


def _memory_left(folder: Path) -> list[int]:
    found = []
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None:
            in_use = max(0, (used or 0) - _reclaimable(folder / "memory.stat"))
            found.append(max(0, most - in_use))
    return found


def _reclaimable(stat: Path) -> int:
    """Cached file contents count as used in a control group, and give way when memory is wanted."""
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    # Version 1 has both: its own, and the total with the groups below, which is what its usage counts.
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(values.get("total_inactive_file", values.get("inactive_file", "0")))


def _cpu_quota(folder: Path) -> list[float]:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return [] if quota == "max" else [int(quota) / int(period)]
    except OSError:
        pass
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return [quota_us / period_us] if quota_us and quota_us > 0 and period_us else []


def _number(path: Path) -> Optional[int]:  # noqa: UP045
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return None if text == "max" else int(text)
