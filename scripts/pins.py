"""Loads a stack file and holds the lock to it. Nothing in either floats.

A range, a tag or a shortened hash is refused with the field, what was expected, what was found and where to get the
right value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from scripts.errors import PinError
from scripts.requirements_file import Locked
from scripts.stackfile import Stack

# What a pattern means in words: field name (last part) -> (expected, fix).
_IN_WORDS = {
    "sha256": ("a full SHA-256: 64 lower-case hex digits", "sha256sum FILE"),
    "member_sha256": ("a full SHA-256: 64 lower-case hex digits", "sha256sum FILE"),
    "version": ("one exact version, such as 0.32.0+cpu", "write the version without operators or wildcards"),
    "distribution": ("a normalised distribution name, such as ai-dynamo", "lower case, words joined by one hyphen"),
    "member": ("a path inside the wheel, such as vllm/vllm-rs", "python -m zipfile -l WHEEL"),
    "python": ("a minor version of Python, such as 3.11", "write it without a patch level"),
    "revision": (
        "a full revision: 40 lower-case hex digits (a server does not serve an abbreviated one, and it can become "
        "ambiguous)",
        "git rev-parse REVISION   # in a clone",
    ),
    "repository": ("an https://, ssh:// or file:// address", "git remote get-url origin   # in a clone"),
    "cuda_archs": (
        "compute capabilities as in TORCH_CUDA_ARCH_LIST, such as 9.0a",
        "nvidia-smi --query-gpu=compute_cap --format=csv",
    ),
    "features": ("names of Cargo features, such as kv-indexer", "see [features] in the source's Cargo.toml"),
    "protoc": ("a release of protoc, such as 25.3", "protoc --version"),
    "cuda": ("a release of CUDA without its patch level, such as 13.0", "nvcc --version"),
    "torch_backend": (
        "cpu, or a CUDA release as PyTorch writes it, such as cu130",
        "python -c 'import torch; print(torch.version.cuda)'",
    ),
    "rust": ("a toolchain as rustup names it, such as 1.95.0 or nightly-2026-05-01", "rustup show active-toolchain"),
}


def load(path: Path) -> Stack:
    """Read and check a stack file. Raises `PinError` naming the first wrong field."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PinError(f"{path.name} is not TOML", found=str(error), where=str(path)) from error
    try:
        stack = Stack.model_validate(table)
    except ValidationError as error:
        raise _in_words(error, path) from error
    if stack.name != path.parent.name:
        raise PinError(
            "the stack's name is not its folder's name", expected=path.parent.name, found=stack.name, where=str(path)
        )
    return stack


def check_lock(stack: Stack, locked: Mapping[str, Locked], path: Path) -> None:
    """Raise `PinError` unless the lock contains every package of the stack file, and not the assembled engine."""
    for name, package in stack.packages.items():
        found = locked.get(name)
        if found is None or found.version != package.version or package.sha256 not in found.hashes:
            raise PinError(
                f"the lock does not pin {name} as the stack file does",
                expected=f"{name}=={package.version} with sha256:{package.sha256}",
                found=_shown(found),
                where=str(path),
                hint=f"./noxw -s lock -- --stack {stack.name}",
            )
    for built in sorted(stack.built & locked.keys()):
        raise PinError(
            f"the lock contains {built}, which `build` makes itself",
            expected=f"no {built}",
            found=f"{built}=={locked[built].version}",
            where=str(path),
            hint=f"./noxw -s lock -- --stack {stack.name}",
        )


def _shown(found: Locked | None) -> str:
    if found is None:
        return "no such package"
    return f"=={found.version} with {len(found.hashes)} hashes: {', '.join(sorted(found.hashes)[:3])}"


def _in_words(error: ValidationError, path: Path) -> PinError:
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return PinError(f"{path.name}: {first['ctx']['error']}", where=str(path))
    location = [str(part) for part in first["loc"]]
    named = [part for part in first["loc"] if isinstance(part, str)]
    expected, hint = first["msg"], None
    if first["type"] == "string_pattern_mismatch" and named[-1] in _IN_WORDS:
        expected, hint = _IN_WORDS[named[-1]]
    found = first["input"]
    if first["type"] == "missing":
        expected, shown = "the field", "nothing"
    else:
        shown = f"{found!r}"
    if isinstance(found, str) and re.fullmatch(r"[0-9a-fA-F]{7,}", found):
        shown += f" ({len(found)} characters)"
    return PinError(
        f"{'.'.join(location)} in {path.name} is wrong", expected=expected, found=shown, where=str(path), hint=hint
    )
