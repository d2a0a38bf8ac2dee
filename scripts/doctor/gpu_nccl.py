"""NCCL: the same release and the same settings on both sides of a refit.

Two ranks that disagree do not say so: the collective waits until its deadline. Not measured on hardware.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from scripts.doctor.gpu_smi import for_gpu_stacks
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.runtime_installed import distributions
from scripts.doctor.subject import Subject

_PACKAGE = re.compile(r"nvidia-nccl-cu\d+")

MUST_AGREE = (
    *("NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_COLLNET_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE"),
    *("NCCL_IB_DISABLE", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET", "NCCL_NVLS_ENABLE"),
    *("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME"),
)
"""Settings that decide how ranks reach each other: one side alone must not have them."""


def _release(subject: Subject) -> Finding:
    required = "the same NCCL release for engine and trainer"
    trainer = subject.options.trainer
    if trainer is None:
        return skip("the trainer runs in the engine's environment, which has one NCCL", required)
    if not subject.machine.is_dir(subject.site_packages):
        return skip("nothing is installed yet", required)
    folder = _site_packages(subject, trainer)
    if folder is None:
        return fail(
            f"{trainer} is no Python environment",
            required,
            f"./noxw -s doctor -- --stack {subject.stack.name} --trainer FOLDER   # with lib/python3.*/site-packages",
        )
    ours = _nccl(distributions(subject.machine, subject.site_packages))
    theirs = _nccl(distributions(subject.machine, folder))
    found = f"engine {_shown(ours)}, trainer {_shown(theirs)}"
    if ours is None:
        return skip(f"{found}: nothing to compare with", required)
    if theirs == ours:
        return ok(found, required)
    fix = f"uv pip install --python {shlex.quote(f'{trainer}/bin/python')} {'=='.join(ours)}"
    if theirs is None:
        return warn(f"{found}: it has another source of NCCL, whose release is not seen", required, fix)
    return fail(found, required, fix)


def _site_packages(subject: Subject, environment: Path) -> Path | None:
    for name in subject.machine.entries(environment / "lib") or ():
        folder = environment / "lib" / name / "site-packages"
        if name.startswith("python3") and subject.machine.is_dir(folder):
            return folder
    return None


def _nccl(packages: dict[str, str]) -> tuple[str, str] | None:
    return next(((name, packages[name]) for name in sorted(packages) if _PACKAGE.fullmatch(name)), None)


def _shown(package: tuple[str, str] | None) -> str:
    return "has no nvidia-nccl package" if package is None else f"{package[0]} {package[1]}"


def _variables(subject: Subject) -> Finding:
    required = "nothing that changes how one side alone communicates"
    exported = sorted(name for name in subject.environ if name.startswith("NCCL_"))
    filed = {path: _set_in(subject, path) for path in (f"{subject.machine.home}/.nccl.conf", "/etc/nccl.conf")}
    written = [path for path, names in filed.items() if names]
    parts = [f"exported: {', '.join(exported)}"] if exported else []
    parts += [f"{path}: {', '.join(filed[path])}" for path in written]
    if not parts:
        return ok("none set", required)
    found = f"{'; '.join(parts)}. A run drops what is exported and gives its programs another home"
    decisive = [name for name in exported if name in MUST_AGREE]
    if decisive:
        return warn(f"{found}; a trainer of your own has it", required, f"unset {' '.join(decisive)}")
    home = next((path for path in written if path != "/etc/nccl.conf" and set(filed[path]) & set(MUST_AGREE)), None)
    if home is not None:
        return warn(
            f"{found}; a trainer of your own reads it", required, f"mv {shlex.quote(home)} {shlex.quote(home)}.off"
        )
    return ok(found, required)


def _set_in(subject: Subject, path: str) -> list[str]:
    text = subject.machine.read_text(path) or ""
    return sorted(set(re.findall(r"(?m)^\s*(NCCL_\w+)\s*=", text)))


def _library(subject: Subject) -> Finding:
    required = "no other libnccl before the environment's own"
    folders = [part for part in subject.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for folder in folders:
        names = [name for name in subject.machine.entries(folder) or () if name.startswith("libnccl.so")]
        if names:
            return warn(
                f"LD_LIBRARY_PATH, which a run passes on, has {folder}/{names[0]}",
                required,
                "unset LD_LIBRARY_PATH   # or take that folder out of it",
            )
    chosen = subject.environ.get("VLLM_NCCL_SO_PATH")
    if chosen is not None:
        there = "" if subject.machine.exists(chosen) else ", which is not there"
        return warn(
            f"VLLM_NCCL_SO_PATH names {chosen}{there}: a run drops it, an engine of your own would load that",
            required,
            "unset VLLM_NCCL_SO_PATH",
        )
    return ok("none is named", required)


CHECKS = (
    Check(
        id="gpu.nccl-release",
        title="NCCL release on both sides",
        group="gpu",
        why="ranks with different NCCL releases do not understand each other",
        symptom="the refit hangs when its group is made, without a word in either log",
        cause="the trainer's environment was resolved apart from the engine's",
        looks_at="the metadata of nvidia-nccl-cu* in both environments (`--trainer FOLDER`)",
        fix="FOLDER/bin/python -m pip install nvidia-nccl-cu13==VERSION   # in the trainer's environment",
        reference="https://github.com/huggingface/trl/issues/6797",
        needed_for=("run",),
        look=for_gpu_stacks(_release),
        rows=(30,),
    ),
    Check(
        id="gpu.nccl-variables",
        title="NCCL settings",
        group="gpu",
        why="settings such as NCCL_CUMEM_ENABLE must be the same for engine and trainer",
        symptom="the refit fails or hangs although both sides work alone",
        cause="a variable or a .nccl.conf that only one of the two sides sees",
        looks_at="NCCL_* in the environment, ~/.nccl.conf and /etc/nccl.conf: the names, no values",
        fix="unset NCCL_CUMEM_ENABLE   # or the same on both sides",
        reference="https://github.com/NovaSky-AI/SkyRL/pull/143",
        needed_for=("run",),
        look=for_gpu_stacks(_variables),
        rows=(30,),
    ),
    Check(
        id="gpu.nccl-library",
        title="NCCL library",
        group="gpu",
        why="the library that is loaded counts, not the package that is installed",
        symptom="`undefined symbol: ncclCommWindowRegister` or the like, or a refit that hangs",
        cause="LD_LIBRARY_PATH or VLLM_NCCL_SO_PATH leads to another libnccl",
        looks_at="both variables, and the folders that they name",
        fix="unset LD_LIBRARY_PATH VLLM_NCCL_SO_PATH",
        reference="https://docs.vllm.ai/en/latest/usage/troubleshooting/",
        needed_for=("run",),
        look=for_gpu_stacks(_library),
        rows=(30,),
    ),
)
