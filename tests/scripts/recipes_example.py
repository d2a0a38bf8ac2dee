"""A machine that has everything the stack prime-rl wants, and that stack's plans on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scripts import pins, recipes, requirements_file
from scripts.jobs import GIB, Resources
from scripts.layout import Layout
from scripts.recipes import RecipeName, RecipePlan, SourceFacts, Toolchain
from scripts.recipes.toolchain import Rust
from scripts.stackfile import GitSource, NestedSource, Stack

LAYOUT = Layout.of("prime-rl")
STACK = pins.load(LAYOUT.stack_file)
VLLM = "e74fc3f1b06258e25519a5d5ed4d9a1b05d9a1cb"
DYNAMO = "fc556d992cd2525eaf6ae0f612f31a46db2e5a7b"
EPOCH = 1785859200
WORK = Path("/builder/smokestack/.cache/compile/prime-rl")
BIG = Resources(cores=64, memory=512 * GIB)

MACHINE = Toolchain(
    root=Path("/builder/smokestack"),
    uv="/builder/smokestack/.nox/tool/bin/uv",
    python="/usr/bin/python3.12",
    python_headers="/usr/include/python3.12",
    tool_python="/builder/smokestack/.nox/tool/bin/python",
    cargo_home="/builder/.cargo",
    cuda_home="/usr/local/cuda-13.0",
    compiler_cache=None,
    rust={
        "1.95.0": Rust("1.95.0", "1.95.0", "1.95.0 (aaa)", "1.95.0 (bbb)", "/builder/.rustup/toolchains/1.95.0"),
        "1.96.1": Rust("1.96.1", "1.96.1", "1.96.1 (ccc)", "1.96.1 (ddd)", "/builder/.rustup/toolchains/1.96.1"),
    },
    versions={
        **{"python": "3.12.11", "uv": "0.13.9", "gcc": "13.3.0", "g++": "13.3.0", "ld": "2.42"},
        **{"git": "2.43.0", "protoc": "25.3", "nvcc": "13.0"},
    },
    platform="linux-x86_64-glibc2.39",
    inherited={
        "PATH": "/builder/.cargo/bin:/usr/bin",
        "HOME": "/builder",
        "UV_DEFAULT_INDEX": "https://me:secret@here/",
    },
    build_lock=Path("/builder/smokestack/stacks/prime-rl/build.lock"),
    build_lock_sha256="b" * 64,
    locked=requirements_file.read(LAYOUT.stack_dir / "build.lock"),
    torch_arguments=(),
)


def fetched(stack: Stack) -> dict[str, SourceFacts]:
    """The facts of sources that lie in the cache."""
    return {name: replace(facts, epoch=EPOCH, tree="c" * 40) for name, facts in recipes.facts(stack).items()}


def plan(
    name: RecipeName,
    *,
    stack: Stack = STACK,
    machine: Toolchain = MACHINE,
    sources: dict[str, SourceFacts] | None = None,
    work: Path = WORK,
    resources: Resources = BIG,
    jobs: int | None = None,
) -> RecipePlan:
    """One recipe's plan."""
    return recipes.plan(
        name,
        stack,
        fetched(stack) if sources is None else sources,
        work=work / name,
        toolchain=machine,
        jobs=recipes.jobs(name, stack, resources, jobs),
    )


def step_of(plan: RecipePlan, name: str) -> recipes.Step:
    """The step of that name."""
    return next(step for step in plan.steps if step.name == name)


def with_vllm(**changes: object) -> Stack:
    """The stack with another recipe of the engine."""
    assert STACK.recipes is not None
    recipe = STACK.recipes.vllm.model_copy(update=changes)
    return STACK.model_copy(update={"recipes": STACK.recipes.model_copy(update={"vllm": recipe})})


def with_nested(*names: str) -> Stack:
    """The stack with these nested sources of the engine pinned."""
    pinned = {name: NestedSource(repository=f"https://github.com/x/{name}", revision="d" * 40) for name in names}
    source = STACK.sources["vllm"].model_copy(update={"nested": pinned})
    return with_source("vllm", source)


def with_source(name: str, source: GitSource) -> Stack:
    """The stack with another source of that name."""
    return STACK.model_copy(update={"sources": {**STACK.sources, name: source}})
