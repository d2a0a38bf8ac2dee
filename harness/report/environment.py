"""`environment.json`: the machine, the tools and the revision that a run happened on, without secrets.

Only named facts are recorded, never the environment variables as such; the home folder is written as `~`. A fact that
cannot be had is None, since none of them is evidence.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

QUESTION_TIMEOUT_S = 5.0
TOOL_PACKAGES = ("pydantic", "httpx", "rich", "psutil", "nox", "uv")
NO_GPUS = "none visible"


def describe(project_root: Path) -> dict[str, Any]:
    """All facts as JSON values. Takes well under a second where no GPU driver is asked."""
    facts = {
        "schema": 1,
        "system": _system(),
        "cpu": _cpu(),
        "memory": _memory(),
        "cgroup": _cgroup(),
        "gpus": _gpus(),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "packages": {name: _version(name) for name in TOOL_PACKAGES},
        "tools": {"git": _answer("git", "--version"), "uv": _answer("uv", "--version")},
        "project": _revision(project_root),
    }
    redacted: dict[str, Any] = redact(facts, _home())
    return redacted


def redact(value: Any, home: Path) -> Any:
    """`value` with the home folder written as `~` in every string. A home of `/` hides nothing and is left alone."""
    if isinstance(value, dict):
        return {name: redact(item, home) for name, item in value.items()}
    if isinstance(value, list):
        return [redact(item, home) for item in value]
    if isinstance(value, str) and home != Path("/"):
        return value.replace(f"{home}/", "~/")
    return value


def _home() -> Path:
    """The user's home; `/` where nobody knows it (a user id without an account, and no HOME)."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def _system() -> dict[str, Any]:
    release = platform.freedesktop_os_release() if Path("/etc/os-release").is_file() else {}
    return {
        "os": release.get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }


def _cpu() -> dict[str, Any]:
    """`usable` counts the logical CPUs that this process may run on."""
    return {
        "model": _cpu_field("model name"),
        "logical": os.cpu_count(),
        "physical": psutil.cpu_count(logical=False),
        "usable": len(os.sched_getaffinity(0)),
        "vector_extensions": [flag for flag in (_cpu_field("flags") or "").split() if flag.startswith(("avx", "amx"))],
    }


def _cpu_field(name: str) -> str | None:
    text = _read(Path("/proc/cpuinfo")) or ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(name)), None)


def _memory() -> dict[str, int]:
    memory = psutil.virtual_memory()
    return {"total_bytes": memory.total, "available_bytes": memory.available, "swap_bytes": psutil.swap_memory().total}


def _cgroup() -> dict[str, str | None]:
    """Limits of a container as the kernel states them; version 2 first, then version 1."""
    root = Path("/sys/fs/cgroup")
    return {
        "memory_limit": _read(root / "memory.max") or _read(root / "memory/memory.limit_in_bytes"),
        "cpu_limit": _read(root / "cpu.max") or _read(root / "cpu/cpu.cfs_quota_us"),
    }


def _gpus() -> list[str] | str:
    listed = _answer("nvidia-smi", "-L")
    gpus = [line.strip() for line in (listed or "").splitlines() if line.startswith("GPU ")]
    return gpus or NO_GPUS


def _revision(root: Path) -> dict[str, Any]:
    changes = _answer("git", "--no-optional-locks", "-C", str(root), "status", "--porcelain")
    return {
        "revision": _answer("git", "-C", str(root), "rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _answer(program: str, *arguments: str) -> str | None:
    """What a program says of itself; None when it is not there, fails or takes too long."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=QUESTION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
