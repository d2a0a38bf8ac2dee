"""Whether a machine can carry out a plan: every tool there, in the release that the stack names. Asked beforehand."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scripts.errors import DoctorError, PinError
from scripts.recipes.steps import RecipePlan
from scripts.recipes.toolchain import Toolchain, rust_of
from scripts.stackfile import Stack

# A path ends up in compilers' flags, which have their own separators.
_UNFIT = re.compile(r"[=,'\"\\*?\[\]\n]")
_INSTALL = {
    "gcc": "apt-get install build-essential",
    "g++": "apt-get install build-essential",
    "ld": "apt-get install binutils",
    "git": "apt-get install git",
}


@dataclass(frozen=True)
class Lack:
    """One thing that is missing or wrong."""

    what: str
    expected: str
    found: str
    fix: str


def lacking(stack: Stack, recipe: str, toolchain: Toolchain) -> list[Lack]:
    """What keeps this machine from carrying out a recipe."""
    tools = stack.tools
    lacks = [
        Lack(name, f"{name} on PATH", "no such program", _INSTALL[name])
        for name in _needed(stack, recipe)
        if toolchain.versions[name] is None
    ]
    if toolchain.versions["python"] is None:
        lacks.append(Lack("python", f"Python {stack.python}", "none", f"{toolchain.uv} python install {stack.python}"))
    lacks += _rust(toolchain, rust_of(stack, recipe))
    if tools is not None and tools.protoc is not None:
        lacks += _release("protoc", tools.protoc, toolchain.versions["protoc"], _PROTOC_FIX.format(tools.protoc))
    if tools is not None and tools.cuda is not None and recipe == "vllm":
        fix = f"install the CUDA toolkit {tools.cuda}, or point CUDA_HOME at it"
        lacks += _release("nvcc", tools.cuda, toolchain.versions["nvcc"], fix)
    lacks += [
        Lack("cargo's configuration", "nothing that changes what is built", setting, "CARGO_HOME=<an empty folder>")
        for setting in toolchain.foreign
    ]
    for path in (str(toolchain.root), toolchain.cargo_home):
        if _UNFIT.search(path) or (" " in path and tools is not None and tools.cuda is not None):
            fix = "build in a folder with a plain name: paths are passed to compilers in flags"
            lacks.append(Lack("a path", "letters, digits, and none of = , ' \" \\ * ? [ ]", path, fix))
    return lacks


def check(stack: Stack, recipe: str, toolchain: Toolchain) -> None:
    """Raise `DoctorError` with everything that is missing."""
    lacks = lacking(stack, recipe, toolchain)
    if lacks:
        raise DoctorError(
            f"this machine cannot build {recipe} of the stack {stack.name}",
            expected="; ".join(f"{lack.what}: {lack.expected}" for lack in lacks),
            found="; ".join(f"{lack.what}: {lack.found}" for lack in lacks),
            hint="\n            ".join(dict.fromkeys(lack.fix for lack in lacks)),
        )


def check_toolchain_file(plan: RecipePlan) -> None:
    """Raise `PinError` when the source itself names another Rust than the stack does."""
    if not plan.toolchain_file.is_file():
        return
    found = re.search(r'^\s*channel\s*=\s*"([^"]+)"', plan.toolchain_file.read_text(encoding="utf-8"), re.MULTILINE)
    channel = None if found is None else found[1]
    if channel is not None and plan.rust != channel and not plan.rust.startswith(f"{channel}."):
        raise PinError(
            f"the source of {plan.recipe} wants another Rust than the stack {plan.stack} names",
            expected=f"{channel} ({plan.toolchain_file.name} of {plan.source.name} at {plan.source.revision})",
            found=plan.rust,
            where=f"stacks/{plan.stack}/stack.toml",
            hint=f'[recipes.{plan.recipe}] rust = "…"   # or tools.rust, when all of them want it',
        )


_PROTOC_FIX = (
    "https://github.com/protocolbuffers/protobuf/releases/tag/v{0}   # bin/ and include/ together, then set PROTOC"
)


def _needed(stack: Stack, recipe: str) -> list[str]:
    """Programs of the machine without which a recipe cannot begin. rustc links with gcc."""
    device = stack.recipes.vllm.device if stack.recipes is not None and recipe == "vllm" else "empty"
    return ["gcc", "ld", "git"] if device == "empty" else ["gcc", "g++", "ld", "git"]


def _rust(toolchain: Toolchain, name: str) -> list[Lack]:
    rust = toolchain.rust[name]
    missing = [program for program, version in (("cargo", rust.cargo), ("rustc", rust.rustc)) if version is None]
    fix = f"rustup toolchain install {name} --profile minimal"
    if missing:
        return [Lack(" and ".join(missing), f"Rust {name}, managed by rustup", "not installed", fix)]
    if not name.startswith("nightly") and rust.rustc is not None and rust.rustc.split()[0] != name:
        return [Lack("rustc", name, f"{rust.rustc} (is the rustc on PATH rustup's?)", fix)]
    return []


def _release(name: str, wanted: str, found: str | None, fix: str) -> list[Lack]:
    return [] if found == wanted else [Lack(name, wanted, found or "no such program", fix)]
