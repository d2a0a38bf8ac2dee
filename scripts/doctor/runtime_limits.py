"""Limits of this shell and settings of the kernel under which a stack does not start, or ends early."""

from __future__ import annotations

import re

from scripts.doctor.registry import Check, Finding, fail, ok, warn
from scripts.doctor.subject import Subject

_PROCESSES = 2048
"""Threads count as processes: a stack has hundreds, most of them of the engine and of Dynamo's runtime."""

_MAPS = 65530
"""The kernel's default; PyTorch with a large model comes near it."""

_MIB = 1 << 20
_UNLIMITED = "unlimited"


def _processes(subject: Subject) -> Finding:
    required = f"{_PROCESSES} processes and threads"
    soft, hard = _limit(subject, "Max processes")
    if soft is None:
        return ok("no limit that can be read", required)
    if soft == _UNLIMITED or int(soft) >= _PROCESSES:
        return ok(soft, required)
    if hard == _UNLIMITED or int(hard) >= _PROCESSES:
        return warn(soft, required, f"ulimit -u {_PROCESSES}")
    return warn(
        soft, required, f"echo '* - nproc {_PROCESSES}' | sudo tee -a /etc/security/limits.conf   # log in again"
    )


def _locked(subject: Subject) -> Finding:
    """Pinned host memory: CUDA pins through its driver, but InfiniBand counts against this limit."""
    required = "memory that may be locked: unlimited, where NCCL uses InfiniBand"
    soft, _ = _limit(subject, "Max locked memory")
    cards = subject.machine.entries("/sys/class/infiniband") or ()
    shown = "unknown" if soft is None else soft if soft == _UNLIMITED else f"{int(soft) // _MIB} MiB"
    if not subject.stack.cuda or not cards:
        return ok(f"{shown}; no InfiniBand in use", required)
    if soft == _UNLIMITED:
        return ok(shown, required)
    return warn(f"{shown}, with {', '.join(cards)}", required, "ulimit -l unlimited   # as root, or in limits.conf")


def _limit(subject: Subject, name: str) -> tuple[str | None, str]:
    """Soft and hard, as the kernel writes them: a number or `unlimited`."""
    text = subject.machine.read_text("/proc/self/limits") or ""
    found = re.search(rf"(?m)^{name}\s+(\d+|unlimited)\s+(\d+|unlimited)", text)
    return (None, "") if found is None else (found.group(1), found.group(2))


def _overcommit(subject: Subject) -> Finding:
    """Strict accounting refuses address space that is reserved and never used, of which CUDA and Go take much."""
    required = "vm.overcommit_memory is 0 or 1"
    value = (subject.machine.read_text("/proc/sys/vm/overcommit_memory") or "").strip()
    if value != "2":
        return ok(value or "not told", required)
    fix = "sudo sysctl -w vm.overcommit_memory=0"
    if subject.stack.cuda:
        return fail("2: reservations are counted as memory", required, fix)
    return warn("2: reservations are counted as memory", required, fix)


def _maps(subject: Subject) -> Finding:
    required = f"vm.max_map_count of {_MAPS} or more"
    value = (subject.machine.read_text("/proc/sys/vm/max_map_count") or "").strip()
    if not value.isdecimal() or int(value) >= _MAPS:
        return ok(value or "not told", required)
    return warn(value, required, f"sudo sysctl -w vm.max_map_count={_MAPS}")


CHECKS = (
    Check(
        id="runtime.process-limit",
        title="limit of processes",
        group="runtime",
        why="a stack is six programs with hundreds of threads",
        symptom="`can't start new thread`, `Resource temporarily unavailable`, OpenMP errors",
        cause="a low `ulimit -u` of a shared machine",
        looks_at="/proc/self/limits",
        fix="ulimit -u 4096",
        reference="https://man7.org/linux/man-pages/man2/getrlimit.2.html",
        needed_for=("run",),
        look=_processes,
    ),
    Check(
        id="runtime.locked-memory",
        title="limit of locked memory",
        group="runtime",
        why="NCCL registers its buffers with the InfiniBand cards, which locks them",
        symptom="`NCCL WARN Call to ibv_reg_mr failed`, `unhandled system error`",
        cause="a low `ulimit -l`",
        looks_at="/proc/self/limits and /sys/class/infiniband",
        fix="ulimit -l unlimited   # as root, or in /etc/security/limits.conf",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        needed_for=("run",),
        look=_locked,
        rows=(31,),
    ),
    Check(
        id="runtime.overcommit",
        title="memory overcommit",
        group="runtime",
        why="CUDA, Go and Rust programs reserve far more address space than they use",
        symptom="`Cannot allocate memory` on a machine with memory to spare",
        cause="vm.overcommit_memory is 2",
        looks_at="/proc/sys/vm/overcommit_memory",
        fix="sudo sysctl -w vm.overcommit_memory=0",
        reference="https://docs.kernel.org/mm/overcommit-accounting.html",
        needed_for=("run",),
        look=_overcommit,
    ),
    Check(
        id="runtime.memory-maps",
        title="memory maps",
        group="runtime",
        why="a process with many threads and loaded weights has tens of thousands of mappings",
        symptom="`Cannot allocate memory` from mmap, with memory to spare",
        cause="vm.max_map_count below the kernel's default",
        looks_at="/proc/sys/vm/max_map_count",
        fix="sudo sysctl -w vm.max_map_count=65530",
        reference="https://docs.kernel.org/admin-guide/sysctl/vm.html",
        needed_for=("run",),
        look=_maps,
    ),
)
