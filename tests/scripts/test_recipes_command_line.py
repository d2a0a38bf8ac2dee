"""`build -- --stack prime-rl --dry-run --json`: the whole plan of the real stack, as the command says it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recipes_example as example

from scripts.layout import PROJECT_ROOT


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    finished = subprocess.run(
        [sys.executable, "-m", "scripts", "build", "--stack", "prime-rl", "--dry-run", "--json", "--jobs", "6"],
        cwd=PROJECT_ROOT,
        env={
            **os.environ,
            "CFLAGS": "-march=native",
            "MAX_JOBS": "99",
            "UV_INDEX_URL": "https://me:secret@example.invalid/",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


@pytest.fixture(scope="module")
def recipes(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {product["name"]: product for product in answer["products"] if "steps" in product}


def step(product: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in product["steps"] if each["name"] == name)
    return found


def test_every_source_has_its_full_revision(answer: dict[str, Any], recipes: dict[str, dict[str, Any]]) -> None:
    revisions = {name: product["source"]["revision"] for name, product in recipes.items()}
    assert revisions == {"vllm": example.VLLM, "dynamo": example.DYNAMO, "sidecar": example.DYNAMO}
    recorded = {each["name"]: each["revision"] for each in answer["manifest"]["sources"]}
    assert recorded == {
        "vllm": example.VLLM,
        "dynamo": example.DYNAMO,
        "prime-rl": "7a8f90b2495e344f5b9198e20f418c472018b1ad",
    }


def test_every_product_has_a_key_and_says_whether_it_is_there(answer: dict[str, Any]) -> None:
    assert [product["name"] for product in answer["products"]] == ["vllm", "dynamo", "sidecar", "payload"]
    for product in answer["products"]:
        assert re.fullmatch(r"[0-9a-f]{64}", product["key"])
        assert isinstance(product["cached"], bool)


def test_every_command_is_the_plans(recipes: dict[str, dict[str, Any]]) -> None:
    for name, product in recipes.items():
        planned = [each.name for each in example.plan(name).steps]  # type: ignore[arg-type]
        assert [each["name"] for each in product["steps"]] == planned
        assert all(each["argv"] for each in product["steps"])


def test_every_variable_of_the_engines_build_is_there(recipes: dict[str, dict[str, Any]]) -> None:
    env = step(recipes["vllm"], "build the wheel")["env"]
    expected = {
        "CARGO_BUILD_JOBS": "6",
        "CARGO_INCREMENTAL": "0",
        "CARGO_NET_OFFLINE": "true",
        "LC_ALL": "C.UTF-8",
        "MAX_JOBS": "6",
        "NVCC_THREADS": "2",
        "PYTHONHASHSEED": "0",
        "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM": "0.26.1.dev0+ge74fc3f1b",
        "TORCH_CUDA_ARCH_LIST": "8.0;8.9;9.0a;10.0a",
        "TZ": "UTC",
        "VLLM_REQUIRE_RUST_FRONTEND": "1",
        "VLLM_TARGET_DEVICE": "cuda",
    }
    assert expected.items() <= env.items()
    assert {"CUDA_HOME", "RUSTC_WRAPPER", "SOURCE_DATE_EPOCH", "PATH", "CFLAGS", "CUDAFLAGS"} <= env.keys()


def test_the_callers_flags_are_dropped_and_secrets_are_not_shown(answer: dict[str, Any]) -> None:
    text = json.dumps(answer)
    assert "march=native" not in text
    assert '"99"' not in text
    assert "secret" not in text


def test_what_floats_is_listed(recipes: dict[str, dict[str, Any]]) -> None:
    floating = {
        name: [each["name"] for each in product["nested"] if each["floating"]] for name, product in recipes.items()
    }
    assert floating["sidecar"] == floating["dynamo"] == ["swagger-ui"]
    assert {"cutlass", "flashmla", "flash-attention", "qutlass", "triton-kernels"} <= set(floating["vllm"])


def test_a_person_sees_the_same_commands_variables_and_keys(recipes: dict[str, dict[str, Any]]) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "scripts", "build", "--stack", "prime-rl", "--dry-run", "--jobs", "6"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = finished.stdout.splitlines()
    for name, product in recipes.items():
        assert f"{name}: key {product['key']}, not there" in lines
        for each in product["steps"]:
            assert f"    $ {shlex.join(each['argv'])}" in lines
    assert "    VLLM_REQUIRE_RUST_FRONTEND=1" in lines
    assert "    TZ=UTC" in lines


def test_a_relative_source_is_the_callers(tmp_path: Path) -> None:
    for variables, place in (({"SMOKESTACK_INVOKED_FROM": str(tmp_path)}, tmp_path), ({}, PROJECT_ROOT)):
        finished = subprocess.run(
            [
                *(sys.executable, "-m", "scripts", "build", "--stack", "prime-rl"),
                *("--dry-run", "--json", "--source", "vllm=my vllm"),
            ],
            cwd=PROJECT_ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert json.loads(finished.stdout)["would"][0] == f"verify vllm in {place / 'my vllm'}"
