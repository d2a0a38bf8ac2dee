"""The tool environment `.nox/tool`, in which every session's commands run: made by uv from `tool.lock`, once.

The noxfile calls this before anything is installed, under whatever Python runs nox: standard library only, and nothing
that an old Python lacks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts import indexes

OLDEST = (3, 11)


def ensure(root: Path) -> str:
    """The folder of the tool environment's programs, after making or renewing it if its lock has changed."""
    folder = root / ".nox" / "tool"
    lock = root / "scripts" / "requirements" / "tool.lock"
    return str(_ensure(root, folder, lock) / "bin")


def _ensure(root: Path, folder: Path, lock: Path) -> Path:
    wanted = {"lock": hashlib.sha256(lock.read_bytes()).hexdigest(), "folder": str(folder)}
    if _is_current(folder, wanted):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "tool.lock").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not _is_current(folder, wanted):
            _make(root, folder, lock)
            _write_stamp(folder, wanted)
    return folder


def _is_current(folder: Path, wanted: dict[str, str]) -> bool:
    try:
        stamp = json.loads((folder / "smokestack-tool.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return bool(stamp == wanted) and (folder / "bin" / "python").exists()


def _make(root: Path, folder: Path, lock: Path) -> None:
    """Start from nothing: an interrupted one has no stamp, and what it left is not worth keeping."""
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("noxfile: uv is not on PATH; install it, or run ./noxw, which needs nothing but python3")
    python = sys.executable if sys.version_info >= OLDEST else f">={OLDEST[0]}.{OLDEST[1]}"
    try:
        site = indexes.uv_variables(os.environ, indexes.read_pip_config(sys.executable))
    except indexes.PipSilentError as error:
        sys.exit(f"noxfile: {error}: no tool environment")
    env = {**os.environ, **site, "UV_PYTHON_DOWNLOADS": "never"}
    env.pop("VIRTUAL_ENV", None)
    print("noxfile: making the tool environment .nox/tool from tool.lock", file=sys.stderr, flush=True)  # noqa: T201
    for arguments in (
        ["venv", "--quiet", "--no-project", "--python", python, str(folder)],
        [
            *("pip", "sync", "--quiet", "--require-hashes", "--only-binary", ":all:"),
            *("--python", str(folder / "bin" / "python"), str(lock)),
        ],
    ):
        made = subprocess.run([uv, *arguments], cwd=root, env=env, stdout=sys.stderr, check=False)
        if made.returncode != 0:
            sys.exit(f"noxfile: `uv {' '.join(arguments[:2])}` ended with {made.returncode}: no tool environment")


def _write_stamp(folder: Path, wanted: dict[str, str]) -> None:
    partial = folder / ".partial-stamp"
    partial.write_text(json.dumps(wanted), encoding="utf-8")
    partial.replace(folder / "smokestack-tool.json")
