"""The doctor's group build as a whole: content with a good machine, silent where nothing is built."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_builds import CHECKS, STACK, found, machine
from doctor_fakes import CPU, look


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_machine_that_has_all_passes(name: str) -> None:
    assert look(CHECKS[name], machine(), STACK).status == "ok"


@pytest.mark.parametrize("name", sorted(set(CHECKS) - {"build.package-index", "build.torch-index", "build.locks"}))
def test_a_stack_of_published_wheels_needs_no_compiler(name: str) -> None:
    finding = look(CHECKS[name], machine(), CPU)
    assert (finding.status, finding.found) == ("skip", "nothing of cpu is compiled")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("protoc", "vllm"),
        ("libclang", "vllm"),
        ("libraries", "vllm"),
        ("patchelf", "vllm"),
        ("rust-frontend", "sidecar"),
        ("python-headers", "sidecar"),
        ("nvcc", "dynamo"),
        ("cuda-home", "sidecar"),
    ],
)
def test_what_only_another_recipe_needs_is_not_asked_for(name: str, recipe: str) -> None:
    assert found(name, machine(), replace(STACK, recipes={recipe: STACK.recipes[recipe]})).status == "skip"
