"""Shared memory: that /dev/shm is large enough, and what earlier engines have left in it."""

from __future__ import annotations

import re
import shlex

from scripts.doctor.machine import READ_LIMIT
from scripts.doctor.registry import Check, Finding, fail, ok, warn
from scripts.doctor.subject import Subject

FOLDER = "/dev/shm"
_MIB = 1 << 20
_GPU_MIB = 1024
_GLOO_MIB = 64
"""A run with one rank on the CPU was seen to use less than 1 MiB."""
_RANKS_MIB = 512
"""Several ranks on the CPU share their buffers there."""

# Not semaphores: the C library maps a new one under another name, so that nobody can tell who has it.
_NAMES = re.compile(r"(psm_|torch_|nccl-|vllm)")
_SETTLED_S = 60.0


def _size(subject: Subject) -> Finding:
    least = _GPU_MIB if subject.stack.cuda else _GLOO_MIB
    required = f"{least} MiB free in {FOLDER}"
    space = subject.machine.space(FOLDER) if subject.machine.is_dir(FOLDER) else None
    if space is None or space.path != FOLDER:
        return fail(f"no {FOLDER}", required, f"sudo mount -t tmpfs -o size=2G,mode=1777 tmpfs {FOLDER}")
    if space.read_only or not subject.machine.may_write(FOLDER):
        return fail(f"{FOLDER} cannot be written to", required, f"sudo mount -o remount,rw,mode=1777 {FOLDER}")
    free = space.free // _MIB
    found = f"{free} of {space.total // _MIB} MiB free"
    larger = f"sudo mount -o remount,size=2G {FOLDER}   # in a container: docker run --shm-size=2g"
    if free < least:
        return fail(found, required, larger)
    if free < _RANKS_MIB:
        return warn(f"{found}: enough for one rank", f"{_RANKS_MIB} MiB free for several ranks", larger)
    return ok(found, required)


def _segments(subject: Subject) -> Finding:
    """Files of this user, of the names that vLLM, torch and NCCL give, a minute old, and held by no process."""
    required = f"nothing that a dead engine left in {FOLDER}"
    machine = subject.machine
    candidates = {
        f"{FOLDER}/{name}"
        for name in machine.entries(FOLDER) or ()
        if _NAMES.match(name)
        and machine.owner(f"{FOLDER}/{name}") == machine.user_id()
        and machine.now() - (machine.modified(f"{FOLDER}/{name}") or machine.now()) >= _SETTLED_S
    }
    left = sorted(candidates - _held(subject) if candidates else ())
    if not left:
        return ok("nothing", required)
    amount = sum(machine.size(path) or 0 for path in left) // _MIB
    return warn(f"{len(left)} files, {amount} MiB, used by nobody", required, f"rm {' '.join(map(shlex.quote, left))}")


def _held(subject: Subject) -> set[str]:
    """What living processes have mapped or open there. A list that is too long to be read counts as everything."""
    machine, found = subject.machine, set()
    for pid in (name for name in machine.entries("/proc") or () if name.isdecimal()):
        maps = machine.read_text(f"/proc/{pid}/maps") or ""
        if len(maps) >= READ_LIMIT:
            return {f"{FOLDER}/{name}" for name in machine.entries(FOLDER) or ()}
        found.update(re.findall(rf"(?m) ({FOLDER}/\S+)", maps))
        for descriptor in machine.entries(f"/proc/{pid}/fd") or ():
            found.add(machine.link(f"/proc/{pid}/fd/{descriptor}") or "")
    return found


CHECKS = (
    Check(
        id="runtime.shared-memory",
        title="/dev/shm",
        group="runtime",
        why="vLLM's ranks and NCCL pass data through it",
        symptom="`Bus error`, `No space left on device`, or `NCCL error: unhandled system error`",
        cause="a container's default of 64 MiB, or files that earlier engines left",
        looks_at="size and free space of /dev/shm",
        fix="sudo mount -o remount,size=2G /dev/shm   # in a container: docker run --shm-size=2g",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        needed_for=("run",),
        look=_size,
        rows=(31,),
    ),
    Check(
        id="runtime.shared-memory-left",
        title="left in /dev/shm",
        group="runtime",
        why="an engine that is killed leaves hundreds of megabytes of memory that nobody frees",
        symptom="less memory after every crash, until nothing starts",
        cause="shared memory has no owner that the kernel could clean up after",
        looks_at="this user's files in /dev/shm, and who has them mapped or open",
        fix="rm FILES   # the doctor names those that no process uses",
        reference="https://github.com/vllm-project/vllm/issues/55510",
        needed_for=("run",),
        look=_segments,
        rows=(28, 31),
    ),
)
