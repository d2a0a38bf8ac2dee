"""Whether the engine's compiled parts can be loaded here: asked of the system's loader, which loads and runs none.

The loader's trace (what `ldd -r` prints) names libraries that are missing, versions of the C library that are too new
for this machine, and symbols that nobody has. All parts are traced in one question, as a program that needs them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from scripts.doctor import interpreters
from scripts.doctor.registry import Check, Finding, fail, ok, skip
from scripts.doctor.runtime_installed import Installed, reinstall, when_unchanged
from scripts.doctor.subject import Subject

_LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}
_NOTHING = "/bin/true"
"""Something to trace that needs nothing itself."""

_PROGRAMS = ("vllm-rs", "dynamo-vllm-sidecar")
LIMIT_S = 2.5
"""For each of three questions."""

_PARTS = ("vllm", "vllm/vllm_flash_attn", "dynamo", "nixl", "nixl_cu12", "nixl_cu13")
_DRIVERS_OWN = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""The driver brings these: see gpu.driver."""

_MISSING = re.compile(r"(?m)^\s*(\S+) => not found")
_TOO_NEW = re.compile(r"version `([^']+)' not found")
_REFUSED = re.compile(r"object '([^']+)' from --preload cannot be preloaded \(([^)]+)\)")
_BROKEN = re.compile(r"error while loading shared libraries: ([^:\n]+): (.+)")
_UNDEFINED = re.compile(r"(?m)^undefined symbol: ([^\s,]+)[^(\n]*\(([^)]*)\)")
_INTERPRETERS = re.compile(r"_?Py[A-Z_]|_Py")
"""Symbols of Python itself: the interpreter has them, and is not traced."""

_DRIVERS_SYMBOLS = re.compile(r"cu[A-Z]\w+|nvml[A-Z]\w+")

_PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libhwloc.so.15": "libhwloc15",
    "libibverbs.so.1": "libibverbs1",
    "libnuma.so.1": "libnuma1",
    "librdmacm.so.1": "librdmacm1",
    "libstdc++.so.6": "libstdc++6",
    "libudev.so.1": "libudev1",
}
"""Debian's package of a library that wheels expect of the system."""


def _loads(subject: Subject, _installed: Installed) -> Finding:
    required = "every library and symbol that they need, on this machine"
    loader = _LOADERS.get(subject.machine.architecture())
    if loader is None or not subject.machine.exists(loader):
        return skip("this machine's loader is not known here", required)
    parts = [path for folder in _PARTS for path in _modules(subject, subject.site_packages / folder)]
    if not parts:
        return fail("the environment has none", required, reinstall(subject))
    text = _trace(subject, loader, parts)
    if text is None:
        return skip("the loader did not answer in time", required)
    refused = [f"{name} ({why})" for name, why in _REFUSED.findall(text)]
    refused += [f"{Path(name).name} ({why})" for name, why in _BROKEN.findall(text)]
    if refused:
        return fail(f"cannot be loaded: {', '.join(refused)}", required, reinstall(subject))
    too_new = sorted(set(_TOO_NEW.findall(text)))
    if too_new:
        found = f"this machine's C or C++ library is too old: it has no {', '.join(too_new)}"
        return fail(found, required, "ldd --version   # a system with a newer one is needed, or a container of one")
    missing = sorted(set(_MISSING.findall(text)) - _DRIVERS_OWN)
    if missing:
        return fail(f"not found: {', '.join(missing)}", required, _fix_for(subject, missing))
    undefined = _undefined(text, {path.name for path in parts})
    if undefined:
        return fail(undefined, required, _rebuild(subject))
    return ok(f"{len(parts)} compiled parts can be loaded", required)


def _trace(subject: Subject, loader: str, parts: list[Path]) -> str | None:
    """What the loader says of all modules together and of each program; None when it says nothing."""
    names = ":".join(dict.fromkeys(path.name for path in parts))
    programs = [path for name in _PROGRAMS if subject.machine.exists(path := subject.environment / "bin" / name)]
    questions = [("--preload", names, _NOTHING), *((str(path),) for path in programs)]
    settings = _tracing(subject, parts)
    answers = [subject.ask(loader, *question, limit_s=LIMIT_S, env=settings) for question in questions]
    return None if any(answer.status is None for answer in answers) else "\n".join(each.output for each in answers)


def _modules(subject: Subject, folder: Path) -> Iterator[Path]:
    for name in subject.machine.entries(folder) or ():
        if name.endswith(".so"):
            yield folder / name


def _tracing(subject: Subject, parts: list[Path]) -> dict[str, str]:
    """The loader's settings. Names without a path are looked up in the folders: a path with a space cannot be named."""
    site = subject.site_packages
    brought = [site / "nvidia" / name / "lib" for name in subject.machine.entries(site / "nvidia") or ()]
    folders = [*dict.fromkeys(path.parent for path in parts), site / "torch" / "lib", *brought]
    return {
        "LD_TRACE_LOADED_OBJECTS": "1",
        "LD_WARN": "yes",
        "LD_BIND_NOW": "yes",
        "LD_PRELOAD": "",
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
    }


def _undefined(text: str, names: set[str]) -> str:
    """The first symbol that nobody has, with the module that needs it; empty when there is none.

    Python binds a module's symbols when it imports it. Those of other libraries may be bound later, or never.
    """
    driverless = not _DRIVERS_OWN.isdisjoint(_MISSING.findall(text))
    symbols = [
        (symbol, file)
        for symbol, file in _UNDEFINED.findall(text)
        if Path(file).name in names
        and not _INTERPRETERS.match(symbol)
        and not (driverless and _DRIVERS_SYMBOLS.fullmatch(symbol))
    ]
    if not symbols:
        return ""
    symbol, file = symbols[0]
    more = f", and {len(symbols) - 1} more" if len(symbols) > 1 else ""
    return f"{Path(file).name} needs {symbol}, which no library here has{more}: built for another torch"


def _fix_for(subject: Subject, missing: list[str]) -> str:
    packages = [_PACKAGES[name] for name in missing if name in _PACKAGES]
    if packages:
        return f"sudo apt-get install -y {' '.join(packages)}"
    if any(name.startswith("libpython") for name in missing):
        return (
            f"{interpreters.install(subject, subject.stack.python)}   # one with a shared libpython; then install again"
        )
    return reinstall(subject)


def _rebuild(subject: Subject) -> str:
    return f"./noxw -s build -- --stack {subject.stack.name} --force"


CHECKS = (
    Check(
        id="runtime.libraries",
        title="compiled parts load",
        group="runtime",
        why="a library or a symbol that is missing shows only when the engine is started",
        symptom="`undefined symbol` in _C.abi3.so; `cannot open shared object file`; `GLIBC_2.38 not found`",
        cause="built for another torch or a newer system, or a system library (libpython, NIXL, libnuma) that is not "
        "installed",
        looks_at="the loader's own trace of vLLM's, Dynamo's and NIXL's modules, as `ldd -r` makes it",
        fix="sudo apt-get install -y libnuma1   # or: ./noxw -s install -- --stack NAME --force",
        reference="https://github.com/vllm-project/vllm/issues/12577",
        needed_for=("run",),
        look=when_unchanged(_loads),
        rows=(6, 16, 17, 20),
    ),
)
