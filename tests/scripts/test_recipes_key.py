"""A key changes with everything that decides the products, and with nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import recipes_example as example
from recipes_example import MACHINE, STACK, plan

from scripts import recipes
from scripts.jobs import GIB, Resources
from scripts.recipes import RECIPES, RecipeName, RecipePlan, SourceFacts, Toolchain
from scripts.requirements_file import Locked


def changed_source(name: str, **changes: object) -> dict[str, SourceFacts]:
    facts = example.fetched(STACK)
    return {**facts, name: replace(facts[name], **changes)}  # type: ignore[arg-type]


def with_tool(name: str, version: str) -> Toolchain:
    return replace(MACHINE, versions={**MACHINE.versions, name: version})


def with_rust(**changes: str) -> Toolchain:
    return replace(MACHINE, rust={**MACHINE.rust, "1.95.0": replace(MACHINE.rust["1.95.0"], **changes)})


DECIDES: dict[str, Callable[[], RecipePlan]] = {
    "the revision": lambda: plan("vllm", sources=changed_source("vllm", revision="0" * 40)),
    "a dirty tree": lambda: plan("vllm", sources=changed_source("vllm", dirty=True)),
    "the version from the tags": lambda: plan("vllm", sources=changed_source("vllm", version="v1-14-gabc")),
    "a nested source": lambda: plan("vllm", stack=example.with_nested("cutlass")),
    "the device": lambda: plan("vllm", stack=example.with_vllm(device="cpu")),
    "GPU architectures": lambda: plan("vllm", stack=example.with_vllm(cuda_archs=["9.0a"])),
    "rustc": lambda: plan("vllm", machine=with_rust(rustc="1.95.0 (other)")),
    "cargo": lambda: plan("vllm", machine=with_rust(cargo="1.95.0 (other)")),
    "gcc": lambda: plan("vllm", machine=with_tool("gcc", "14.1.0")),
    "ld": lambda: plan("vllm", machine=with_tool("ld", "2.43")),
    "nvcc": lambda: plan("vllm", machine=with_tool("nvcc", "13.1")),
    "protoc": lambda: plan("vllm", machine=with_tool("protoc", "30.2")),
    "python": lambda: plan("vllm", machine=with_tool("python", "3.12.12")),
    "uv": lambda: plan("vllm", machine=with_tool("uv", "9.9.9")),
    "build.lock": lambda: plan("vllm", machine=replace(MACHINE, build_lock_sha256="e" * 64)),
    "a locked tool": lambda: plan(
        "vllm", machine=replace(MACHINE, locked={**MACHINE.locked, "cmake": Locked("9.9", frozenset())})
    ),
    "the C library": lambda: plan("vllm", machine=replace(MACHINE, platform="linux-x86_64-glibc2.28")),
}

DOES_NOT: dict[str, Callable[[], RecipePlan]] = {
    "the number of jobs": lambda: plan("vllm", jobs=3),
    "the machine's size": lambda: plan("vllm", resources=Resources(2, 4 * GIB)),
    "where torch comes from": lambda: plan(
        "vllm", machine=replace(MACHINE, torch_arguments=("--torch-backend", "cu130"))
    ),
    "the folder": lambda: plan("vllm", work=Path("/somewhere else/=quite=/.cache/compile/prime-rl")),
    "the project's folder": lambda: plan(
        "vllm",
        machine=replace(
            MACHINE,
            root=Path("/other root"),
            uv="/other root/.nox/tool/bin/uv",
            tool_python="/other root/.nox/tool/bin/python",
            build_lock=Path("/other root/stacks/prime-rl/build.lock"),
        ),
        work=Path("/other root/.cache/compile/prime-rl"),
    ),
    "where Python is": lambda: plan("vllm", machine=replace(MACHINE, python="/opt/python/bin/python3.12")),
    "where CUDA is": lambda: plan("vllm", machine=replace(MACHINE, cuda_home="/opt/cuda")),
    "cargo's home": lambda: plan("vllm", machine=replace(MACHINE, cargo_home="/elsewhere/cargo")),
    "where Rust is": lambda: plan("vllm", machine=with_rust(sysroot="/usr")),
    "rustup's name for it": lambda: plan("vllm", machine=with_rust(selector="stable-x86_64-unknown-linux-gnu")),
    "a compiler cache": lambda: plan("vllm", machine=replace(MACHINE, compiler_cache="/usr/bin/sccache")),
    "the caller's variables": lambda: plan(
        "vllm", machine=replace(MACHINE, inherited={"PATH": "/x", "https_proxy": "http://p", "HOME": "/y"})
    ),
    "whether the source is fetched yet": lambda: plan("vllm", sources=recipes.facts(STACK)),
    "another source": lambda: plan("vllm", sources=changed_source("dynamo", revision="0" * 40)),
}


@pytest.mark.parametrize("what", DECIDES)
def test_another_key_comes_with_another(what: str) -> None:
    assert recipes.key(DECIDES[what]()) != recipes.key(plan("vllm"))


@pytest.mark.parametrize("what", DOES_NOT)
def test_the_key_stays_whatever(what: str) -> None:
    made = DOES_NOT[what]()
    assert recipes.parts(made) == recipes.parts(plan("vllm"))
    assert recipes.key(made) == recipes.key(plan("vllm"))


def test_the_time_of_a_clean_source_is_in_its_revision() -> None:
    assert recipes.key(plan("vllm", sources=changed_source("vllm", epoch=1))) == recipes.key(plan("vllm"))


def test_two_dirty_trees_of_one_revision_are_two_keys() -> None:
    one, other = (changed_source("vllm", dirty=True, tree=tree * 40) for tree in "ab")
    assert recipes.key(plan("vllm", sources=one)) != recipes.key(plan("vllm", sources=other))


def test_only_the_engine_depends_on_cuda() -> None:
    other = with_tool("nvcc", "13.1")
    assert recipes.key(plan("sidecar", machine=other)) == recipes.key(plan("sidecar"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_path_of_the_machine_is_in_it(recipe: RecipeName) -> None:
    text = json.dumps(recipes.parts(plan(recipe)))
    assert "/builder" not in text
    assert not re.search(r"/usr/(bin|local)", text)


def test_the_recipes_are_three_keys() -> None:
    assert len({recipes.key(plan(recipe)) for recipe in RECIPES}) == 3


def test_code_that_only_shows_or_explains_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hours of compiling must not depend on the wording of a message; they do on the code that writes the products."""
    from scripts.recipes import keys

    before = recipes.key(plan("vllm"))
    assert {"normalise.py", "wheels.py", "recipes/rustc.py"} <= set(keys._AT_WORK)
    assert not {"recipes/diagnosis.py", "recipes/progress.py", "recipes/complaints.py"} & set(keys._AT_WORK)
    for name in keys._AT_WORK:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((keys._PLANE / name).read_bytes())
    monkeypatch.setattr(keys, "_PLANE", tmp_path)
    assert recipes.key(plan("vllm")) == before
    (tmp_path / "normalise.py").write_text("# other code\n")
    assert recipes.key(plan("vllm")) != before


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan("vllm").recipe = "other"  # type: ignore[misc]
