"""The environment of the stack's processes: a short list of the caller's variables, then ours, then the service's own.

An allow-list, because what can disturb a run has no end (`NATS_SERVER`, `HTTP_PROXY`, `OMP_NUM_THREADS`, `PYTHONPATH`,
…). Pure functions; imports nothing of the project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LOOPBACK_NAMES = "127.0.0.1,localhost,::1"

_IDENTITY = frozenset({"USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR"})
_CERTIFICATES = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NIX_SSL_CERT_FILE"}
)
_ALLOWED = _IDENTITY | _CERTIFICATES
_ALLOWED_PREFIXES = ("LC_",)

# The driver's libraries belong to the machine, not to the stack. On a machine without a GPU the same variables could
# only put foreign libraries before the pinned ones. Which GPUs a process sees is the run's to say (`harness.gpus`).
_CUDA = frozenset(
    {
        "CUDA_HOME",
        "LD_LIBRARY_PATH",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_VISIBLE_DEVICES",
    }
)

_TOOL_FOLDERS = (".tool", ".nox")
_FOREIGN_PREFIXES = ("DYN_", "DYNAMO_", "ETCD_", "NATS_", "SMOKESTACK_", "VLLM_")
_FOREIGN_TO_TOOLS = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"})


def service_environment(
    caller: Mapping[str, str],
    *,
    platform: str,
    environment: Path,
    tmp_dir: Path,
    cache_dir: Path,
    own: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The complete environment of one of the stack's processes.

    `environment` is the stack's isolated environment, whose `bin` comes first in PATH; `tmp_dir` the run's short
    scratch folder; `cache_dir` where caches of the stack may be written (kept between runs, inside the project). `own`
    is what the service itself needs and has the last word. `platform` is "cpu" or "cuda".
    """
    allowed = _ALLOWED | _CUDA if platform == "cuda" else _ALLOWED
    kept = {name: value for name, value in caller.items() if name in allowed or name.startswith(_ALLOWED_PREFIXES)}
    search = [str(environment / "bin"), caller.get("PATH") or os.defpath]
    return {
        **kept,
        "PATH": os.pathsep.join(search),
        "NO_PROXY": LOOPBACK_NAMES,
        "no_proxy": LOOPBACK_NAMES,
        # Without these a package in ~/.local could stand in for a pinned one, and a crash would lose its last lines.
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        **_folders(tmp_dir, cache_dir),
        **_quiet(),
        **(own or {}),
    }


def tool_environment(caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of build-plane commands: the caller's (they need its proxies and wheelhouses), less the stack's
    own variables and whatever would redirect Python or keep it from caching bytecode."""
    return {
        name: value
        for name, value in caller.items()
        if not name.startswith(_FOREIGN_PREFIXES) and name not in _FOREIGN_TO_TOOLS
    }


def callers_environment(caller: Mapping[str, str], *, project: Path, own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program of the caller's own: as the caller has it, less the variables of other stacks.

    A proxy stays, for what the program fetches elsewhere; loopback never goes through it. `own` has the last word.
    """
    kept = {name: value for name, value in caller.items() if not name.startswith(_FOREIGN_PREFIXES)}
    kept["PATH"] = callers_path_variable(caller, project)
    direct = {name: ",".join(filter(None, [caller.get(name), LOOPBACK_NAMES])) for name in ("NO_PROXY", "no_proxy")}
    return {**kept, **direct, "PYTHONUNBUFFERED": "1", **own}


def callers_path_variable(caller: Mapping[str, str], project: Path) -> str:
    """The caller's PATH, less the folders of this project's own tools, which `noxw` and nox put before it."""
    tools = tuple(project / name for name in _TOOL_FOLDERS)
    folders = (caller.get("PATH") or os.defpath).split(os.pathsep)
    return os.pathsep.join(one for one in folders if not any(Path(one).is_relative_to(tool) for tool in tools))


def _folders(tmp_dir: Path, cache_dir: Path) -> dict[str, str]:
    """Every place where the stack's programs write unasked, moved into the run's scratch folder or the project."""
    caches = {
        "XDG_CACHE_HOME": "xdg",
        "HF_HOME": "huggingface",
        "VLLM_CACHE_ROOT": "vllm",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
        "MPLCONFIGDIR": "matplotlib",
    }
    return {
        "TMPDIR": str(tmp_dir),
        # Dynamo keeps what it knows of models below ~/.cache, and cannot publish one without a home.
        "HOME": str(tmp_dir),
        "VLLM_RPC_BASE_PATH": str(tmp_dir),
        "XDG_CONFIG_HOME": str(tmp_dir / "config"),
        "XDG_DATA_HOME": str(tmp_dir / "data"),
        "VLLM_CONFIG_ROOT": str(tmp_dir / "config" / "vllm"),
        **{name: str(cache_dir / folder) for name, folder in caches.items()},
    }


def _quiet() -> dict[str, str]:
    """Nothing of a run asks a hub or reports usage."""
    return {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
