"""Group build: the git sources of a stack, and those that a build fetches by itself."""

from __future__ import annotations

from pathlib import Path

from scripts.doctor.facts import SourceFacts
from scripts.doctor.host_paths import quoted
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject, means_on

NESTED = {
    "cuda": (
        *("cutlass", "deepgemm", "flash-attention", "flashmla", "fmha-sm100"),
        *("qutlass", "tml-fa4", "triton-kernels"),
    ),
    "cpu": ("onednn",),
}
"""What vLLM's own build fetches for a device, unless it is pinned: the same names as in `recipes.nested`."""

DOWNLOADED_BY_A_CRATE = "swagger-ui"
"""By the build script of utoipa-swagger-ui, with curl; no lock file has its hash."""

_OFFLINE = ("UV_OFFLINE", "CARGO_NET_OFFLINE", "PIP_NO_INDEX")
_IGNORED = (
    *("MAX_JOBS", "NVCC_THREADS", "CARGO_BUILD_JOBS", "TORCH_CUDA_ARCH_LIST", "CMAKE_ARGS", "CMAKE_BUILD_TYPE"),
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"),
    *("SETUPTOOLS_SCM_PRETEND_VERSION", "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM", "SOURCE_DATE_EPOCH"),
)


def _sources(subject: Subject) -> Finding:
    """Checkouts given by `--source` are judged as the build will; what is fetched is verified when it is there."""
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    given = subject.options.sources
    required = "full revisions; a checkout that is given is at its revision, whole and clean"
    unknown = sorted(set(given) - set(subject.stack.sources))
    if unknown:
        known = ", ".join(sorted(subject.stack.sources))
        return fail(f"no source named {', '.join(unknown)}", f"one of: {known}", "./noxw -s build -- --help")
    for name, path in given.items():
        finding = _given(subject, name, path, subject.stack.sources[name], required)
        if finding is not None:
            return finding
    fetched = sorted(set(subject.stack.sources) - set(given))
    parts = [f"{', '.join(sorted(given))} given"] if given else []
    parts += [f"{', '.join(fetched)} fetched by full revision, and verified"] if fetched else []
    return ok("; ".join(parts), required)


def _given(subject: Subject, name: str, path: Path, source: SourceFacts, required: str) -> Finding | None:
    """What is wrong with a checkout; None when nothing is."""
    git = f"git -C {quoted(path)}"
    if not subject.machine.is_dir(path):
        return fail(f"{name}: {path} is no folder", required, f"git clone {source.repository} {quoted(path)}")
    head = subject.ask("git", "-C", str(path), "rev-parse", "--verify", "HEAD^{commit}")
    if not head.good:
        fix = f"git clone {source.repository} {quoted(path)}-git   # an unpacked archive has no revision"
        return fail(f"{name}: {path} is no git repository: {head.in_short}", required, fix)
    found = head.output.strip()
    if subject.machine.exists(path / ".git") and found != source.revision:
        fix = f"{git} fetch origin {source.revision} && {git} checkout --detach {source.revision}"
        return fail(f"{name}: {path} is at {found}", f"{name} at {source.revision}", fix)
    status = subject.ask("git", "-C", str(path), "submodule", "status").output
    # A line is `-REVISION PATH` where nothing is checked out.
    lacking = [line[1:].split() for line in status.splitlines() if line.startswith("-")]
    if lacking:
        named = ", ".join(f"{each[-1]} at {each[0]}" for each in lacking)
        return fail(f"{name}: {path} lacks submodules: {named}", required, f"{git} submodule update --init --recursive")
    tags = _without_tags(subject, path)
    if source.version is None and tags:
        wanted = f"{name} at {source.revision} with tags to make its version from, or a version in the stack file"
        return fail(f"{name}: {path} {tags}", wanted, f"{git} fetch {_DEEPER}")
    changed = subject.ask("git", "-C", str(path), "status", "--porcelain")
    if changed.good and changed.output.strip():
        count = len(changed.output.strip().splitlines())
        return warn(
            f"{name}: {path} has {count} changed files: refused without --allow-dirty",
            required,
            f"{git} status --short",
        )
    return None


_DEEPER = "--unshallow --tags   # --tags alone where the clone is whole; or pin its version in the stack file"


def _without_tags(subject: Subject, path: Path) -> str:
    if subject.says(["git", "-C", str(path), "rev-parse", "--is-shallow-repository"]) == "true":
        return "is a shallow clone, from which no version can be counted"
    described = subject.ask("git", "-C", str(path), "describe", "--tags", "--match", "*[0-9]*")
    return "" if described.good else "has no tag in its history"


def _nested(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    recipes = subject.stack.recipes
    crates = [DOWNLOADED_BY_A_CRATE] if {"dynamo", "sidecar"} & set(recipes) else []
    required = "each pinned, or a network (and curl) that lets the build fetch them"
    if crates and subject.which("curl") is None:
        return fail(
            f"no curl, with which a crate of Dynamo fetches {crates[0]}", required, "sudo apt-get install -y curl"
        )
    recipe = recipes.get("vllm", {})
    source = subject.stack.sources.get(str(recipe.get("source")), SourceFacts())
    floating = [name for name in NESTED.get(str(recipe.get("device")), ()) if name not in source.nested]
    if not floating and not crates:
        return ok(f"all pinned: {', '.join(source.nested) or 'none is fetched'}", required)
    closed = [name for name in _OFFLINE if means_on(subject.environ.get(name, ""))]
    if closed:
        fix = (
            f"unset {' '.join(closed)}   # or pin them: [sources.NAME.nested] in stacks/{subject.stack.name}/stack.toml"
        )
        return warn(f"{', '.join(floating + crates)} will be fetched, and {', '.join(closed)} is set", required, fix)
    if not floating:
        return ok(f"all of vLLM's are pinned; {crates[0]} is fetched by a crate of Dynamo", required)
    table = f"[sources.{recipe.get('source')}.nested.{floating[0]}]"
    edit = f"${{EDITOR:-vi}} stacks/{subject.stack.name}/stack.toml   # {table}"
    return warn(f"fetched at what the sources' own build files name: {', '.join(floating + crates)}", required, edit)


def _precompiled(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "no VLLM_USE_PRECOMPILED: everything is compiled from the pinned revision"
    names = sorted(name for name in subject.environ if name.startswith(("VLLM_USE_PRECOMPILED", "VLLM_PRECOMPILED")))
    if names:
        return warn(f"{', '.join(names)} set, which builds do not take over", required, f"unset {' '.join(names)}")
    return ok("not set", required)


def _ignored(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "options instead of variables: builds take over no variable that changes what comes out"
    names = [name for name in _IGNORED if subject.environ.get(name)]
    if not names:
        return ok("no such variable is set", required)
    fix = f"unset {' '.join(names)}   # builds have options instead: --jobs N"
    return warn(f"set, and not taken over: {', '.join(names)}", required, fix)


CHECKS = (
    Check(
        id="build.sources",
        title="sources",
        group="build",
        why="a build is of one revision, and its version comes from the stack file or from the history",
        symptom="LookupError: setuptools-scm was unable to detect version, or a wheel with an odd version",
        cause="an unpacked archive, a shallow clone, missing tags or submodules, or another revision",
        looks_at="the checkouts given by --source: HEAD, submodules, depth, tags, changed files",
        fix="git -C FOLDER fetch --unshallow --tags   # or: checkout --detach REVISION, submodule update --init",
        reference="https://github.com/vllm-project/vllm/issues/13130",
        needed_for=("build",),
        look=_sources,
        rows=(3,),
    ),
    Check(
        id="build.nested-sources",
        title="nested sources",
        group="build",
        why="what floats can change or vanish between two builds, and needs a network in the middle of one",
        symptom="CMake stops while it clones CUTLASS, FlashMLA or another one",
        cause="vLLM's build fetches sources by itself where nobody hands them over",
        looks_at="which of them the stack file pins, and variables that close the network",
        fix="${EDITOR:-vi} stacks/NAME/stack.toml   # [sources.vllm.nested.cutlass] repository, revision",
        reference="https://github.com/vllm-project/vllm/issues/13424",
        needed_for=("build",),
        look=_nested,
        rows=(12,),
    ),
    Check(
        id="build.precompiled",
        title="precompiled parts",
        group="build",
        why="a precompiled engine is of another commit than the one that is pinned",
        symptom="404 for a wheel, or symbols that do not fit the Python code",
        cause="VLLM_USE_PRECOMPILED takes a nightly wheel, which moves and is removed",
        looks_at="VLLM_USE_PRECOMPILED* and VLLM_PRECOMPILED_*",
        fix="unset VLLM_USE_PRECOMPILED VLLM_PRECOMPILED_WHEEL_LOCATION",
        reference="https://github.com/vllm-project/vllm/issues/50215",
        needed_for=("build",),
        look=_precompiled,
        rows=(7,),
    ),
    Check(
        id="build.variables",
        title="build variables",
        group="build",
        why="who sets MAX_JOBS expects it to count; here options do",
        symptom="more or fewer jobs, other flags or architectures than were asked for",
        cause="builds keep an environment of their own, so that the same pins make the same bytes",
        looks_at=f"{', '.join(_IGNORED[:6])}, compiler flags and versions in the environment",
        fix="unset MAX_JOBS NVCC_THREADS   # and: ./noxw -s build -- --jobs N",
        reference="https://github.com/vllm-project/vllm/issues/20079",
        needed_for=("build",),
        look=_ignored,
        rows=(2,),
    ),
)
