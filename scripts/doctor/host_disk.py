"""Group host: room for what each phase writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.doctor.host_memory import gib
from scripts.doctor.host_paths import SHORT_TMPDIR, quoted
from scripts.doctor.machine import Space
from scripts.doctor.registry import Check, Finding, fail
from scripts.doctor.subject import Subject
from scripts.jobs import GIB

FEW_FILES = 50_000
SPARE = GIB // 4
"""What a phase writes that has nothing to do: logs, stamps, evidence."""


@dataclass(frozen=True)
class _Place:
    """A folder that a phase writes into: `least` bytes in any case, `whole` when everything is made again."""

    path: Path
    least: int
    whole: int


def _places(subject: Subject, phase: str) -> list[_Place]:
    """Measured for stacks of published wheels; an estimate for what is compiled and for CUDA's packages."""
    root, compiled = subject.root, subject.stack.from_source
    temporary = Path(subject.environ.get("TMPDIR") or SHORT_TMPDIR)
    if phase == "build":
        whole = {root / ".cache": 30 * GIB, root / "dist": 4 * GIB} if compiled else {root: 2 * GIB}
        whole[temporary] = 2 * GIB if compiled else SPARE
        done = subject.machine.exists(root / "dist" / subject.stack.name / "manifest.json")
    elif phase == "install":
        environment = 12 * GIB if subject.stack.cuda else 3 * GIB
        whole = {root: environment, _uv_cache(subject): environment}
        done = subject.machine.exists(subject.environment / "smokestack-install.json")
    else:
        whole = {root / "runs": SPARE, root / ".cache": SPARE, temporary: SPARE}
        done = True
    return [_Place(path, SPARE if done else need, need) for path, need in whole.items()]


def _uv_cache(subject: Subject) -> Path:
    base = subject.environ.get("XDG_CACHE_HOME") or f"{subject.machine.home}/.cache"
    return Path(subject.environ.get("UV_CACHE_DIR") or f"{base}/uv")


def _disk(subject: Subject, phase: str) -> Finding:
    """Places on one file system share its room: it is known by its numbers."""
    shared: dict[tuple[int, int], list[tuple[_Place, Space]]] = {}
    for place in _places(subject, phase):
        space = subject.machine.space(place.path)
        if space is None:
            return fail(f"{place.path} does not answer", "a file system with room", f"df -h {quoted(place.path)}")
        if space.read_only:
            return fail(
                f"{space.path} is mounted read-only",
                "a file system to write to",
                _elsewhere(subject, place) or f"sudo mount -o remount,rw {quoted(space.path)}",
            )
        if (
            _elsewhere(subject, place)
            and subject.machine.exists(space.path)
            and not subject.machine.may_write(space.path)
        ):
            return fail(f"{place.path} may not be written", "a cache of uv", _elsewhere(subject, place))
        shared.setdefault((space.total, space.free), []).append((place, space))
    return _judged(list(shared.values()), estimated=subject.stack.from_source and phase != "run")


def _elsewhere(subject: Subject, place: _Place) -> str:
    """uv's cache may lie anywhere; the other places are the project's."""
    return "export UV_CACHE_DIR=/var/tmp/uv-cache" if place.path == _uv_cache(subject) else ""


def _judged(systems: list[list[tuple[_Place, Space]]], *, estimated: bool) -> Finding:
    found, required, status = [], [], "ok"
    for places in systems:
        space = places[0][1]
        least, whole = (sum(getattr(place, name) for place, _ in places) for name in ("least", "whole"))
        few_files = space.files_free is not None and space.files_free < FEW_FILES
        required.append(gib(whole) + (f", {gib(least)} while nothing is made again" if least < whole else ""))
        found.append(
            f"{gib(space.free)} at {space.path}" + (f", but only {space.files_free} files" if few_files else "")
        )
        if space.free < least or few_files:
            status = "fail"
        elif space.free < whole and status == "ok":
            status = "warn"
    fix = "./noxw -s clean   # lists caches and old runs before it deletes them; df -h and df -i show what is full"
    return Finding(
        status,
        "; ".join(found),
        "; ".join(required) + (" (estimated)" if estimated else ""),
        "" if status == "ok" else fix,
    )


def _disk_build(subject: Subject) -> Finding:
    return _disk(subject, "build")


def _disk_install(subject: Subject) -> Finding:
    return _disk(subject, "install")


def _disk_run(subject: Subject) -> Finding:
    return _disk(subject, "run")


CHECKS = (
    Check(
        id="host.disk-build",
        title="room to build",
        group="host",
        why="a full disk ends a build after an hour's work",
        symptom="No space left on device, or a slow build that keeps nothing",
        cause="sources, build trees and wheels take many gigabytes; or the file system has no inodes left",
        looks_at="free bytes and inodes at .cache, dist and TMPDIR",
        fix="./noxw -s clean   # lists caches and old runs before it deletes them",
        reference="https://github.com/vllm-project/vllm/issues/15827",
        needed_for=("build",),
        look=_disk_build,
        rows=(32,),
    ),
    Check(
        id="host.disk-install",
        title="room to install",
        group="host",
        why="an environment is unpacked twice: into uv's cache and into the checkout",
        symptom="No space left on device while packages are installed",
        cause="uv's cache lies on another file system than the checkout, or either is small",
        looks_at="free bytes and inodes at the checkout and at uv's cache",
        fix="./noxw -s clean   # or: export UV_CACHE_DIR=FOLDER, on the checkout's file system",
        reference="https://docs.astral.sh/uv/concepts/cache/",
        needed_for=("install",),
        look=_disk_install,
        rows=(32,),
    ),
    Check(
        id="host.disk-run",
        title="room to run",
        group="host",
        why="evidence that could not be written is none",
        symptom="No space left on device in the middle of a run",
        cause="a full disk, or a small tmpfs at TMPDIR",
        looks_at="free bytes and inodes at runs, .cache and TMPDIR",
        fix="./noxw -s clean",
        reference="https://github.com/vllm-project/vllm/issues/18040",
        needed_for=("run",),
        look=_disk_run,
        rows=(32,),
    ),
)
