"""Group build: C and C++ compilers, CMake, ninja, a compiler cache."""

from __future__ import annotations

from scripts.doctor import versions
from scripts.doctor.locked import BUILD, brought
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

OLDEST_CMAKE = (3, 26)
OLDEST_GCC = {"cpu": (12, 3), "cuda": (11, 0)}
"""For vLLM's CPU kernels as its documentation says; for the GPU what the C++20 of torch's headers takes (estimated)."""

_COMPILERS = {"gcc": "gcc", "g++": "g++", "make": "make", "ld": "binutils"}


def device(subject: Subject) -> str | None:
    """What the engine is compiled for: cuda, cpu, empty; None where it is not compiled."""
    recipe = subject.stack.recipes.get("vllm")
    return None if recipe is None else str(recipe.get("device"))


def switch_to_gcc(release: int) -> str:
    """The command that gets gcc and g++ of a release, and makes them the ones that are found."""
    slave = f"--slave /usr/bin/g++ g++ /usr/bin/g++-{release}"
    use = f"sudo update-alternatives --install /usr/bin/gcc gcc /usr/bin/gcc-{release} 100 {slave}"
    return f"sudo apt-get install -y gcc-{release} g++-{release} && {use}"


def _compilers(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    oldest = OLDEST_GCC.get(device(subject) or "", (9, 0))
    required = f"gcc and g++ {versions.dotted(oldest)} or newer, make, ld"
    missing = [name for name in _COMPILERS if subject.which(name) is None]
    if missing:
        return fail(f"no {', '.join(missing)}", required, "sudo apt-get install -y build-essential")
    found = {name: versions.parse(subject.says([name, "-dumpfullversion"]) or "") for name in ("gcc", "g++")}
    unknown = [name for name, version in found.items() if version is None]
    if unknown:
        return fail(f"{unknown[0]} does not say its version", required, f"{unknown[0]} -dumpfullversion")
    shown = ", ".join(f"{name} {versions.dotted(version)}" for name, version in found.items() if version)
    if any(version < oldest for version in found.values() if version):
        newer = oldest[0] + (oldest[1] > 0)
        return fail(shown, required, switch_to_gcc(newer))
    if len(set(found.values())) > 1:
        return warn(
            f"{shown}: not the same", required, "update-alternatives --display gcc; gcc --version; g++ --version"
        )
    return ok(shown, required)


def _cmake(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = f"cmake {versions.dotted(OLDEST_CMAKE)} or newer"
    locked = brought(subject, "cmake")
    if locked:
        return ok(f"cmake {locked} of {BUILD}", required)
    answer = subject.ask("cmake", "--version")
    version = versions.parse(answer.output) if answer.good else None
    if version is not None and version >= OLDEST_CMAKE:
        return ok(f"cmake {versions.dotted(version)}", required)
    found = f"cmake {versions.dotted(version)}" if version else answer.in_short
    venv = '"$HOME/cmake'
    fix = f'python3 -m venv {venv}" && {venv}/bin/pip" install \'cmake>=3.26\' && export PATH={venv}/bin:$PATH"'
    return fail(found, required, fix)


def _ninja(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "ninja"
    locked = brought(subject, "ninja")
    if locked:
        return ok(f"ninja {locked} of {BUILD}", required)
    found = subject.says(["ninja", "--version"])
    return (
        ok(f"ninja {found}", required) if found else fail("no ninja", required, "sudo apt-get install -y ninja-build")
    )


def _compiler_cache(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "nothing; with sccache or ccache a second build is much shorter"
    for name in ("sccache", "ccache"):
        if subject.which(name) is not None:
            return ok((subject.says([name, "--version"]) or name).splitlines()[0], required)
    return warn("neither sccache nor ccache", required, "sudo apt-get install -y ccache")


CHECKS = (
    Check(
        id="build.compilers",
        title="C and C++ compilers",
        group="build",
        why="the engine's kernels and many crates are C++",
        symptom="C++ compiler not found, unknown flag, or an internal compiler error",
        cause="no compilers, too old ones, or a gcc and a g++ that do not belong together",
        looks_at="gcc, g++, make and ld on PATH, and the versions of the first two",
        fix="sudo apt-get install -y build-essential",
        reference="https://github.com/vllm-project/vllm/issues/27890",
        needed_for=("build",),
        look=_compilers,
        rows=(11,),
    ),
    Check(
        id="build.cmake",
        title="CMake",
        group="build",
        why="vLLM's build files ask for 3.26",
        symptom="CMake 3.26 or higher is required. You are running version 3.22",
        cause="the distribution's CMake is older",
        looks_at="build.lock, then cmake on PATH",
        fix="uv tool install 'cmake>=3.26'   # newer than Debian's and Ubuntu's",
        reference="https://github.com/vllm-project/vllm/issues/981",
        needed_for=("build",),
        look=_cmake,
        rows=(11,),
    ),
    Check(
        id="build.ninja",
        title="ninja",
        group="build",
        why="with make instead, the number of jobs is another one",
        symptom="CMake was unable to find a build program corresponding to Ninja",
        cause="ninja is not installed",
        looks_at="build.lock, then ninja on PATH",
        fix="sudo apt-get install -y ninja-build",
        reference="https://ninja-build.org/",
        needed_for=("build",),
        look=_ninja,
    ),
    Check(
        id="build.compiler-cache",
        title="compiler cache",
        group="build",
        why="the engine takes an hour or more to compile, again after every change of a pin",
        symptom="every build takes as long as the first one",
        cause="neither sccache nor ccache is on PATH",
        looks_at="sccache, then ccache, as vLLM's build picks them",
        fix="sudo apt-get install -y ccache",
        reference="https://ccache.dev/",
        needed_for=("build",),
        look=_compiler_cache,
        rows=(32,),
    ),
)
