"""What is installed is what was built, and torch is the stack's; all of it read from metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_fakes import CPU, FakeMachine, look
from doctor_installs import PINNED, ROOT, installed

from scripts.doctor import runtime, runtime_packages
from scripts.doctor.registry import Check, Finding

PACKAGES, TORCH, BOUNDS = runtime_packages.CHECKS
OF_THE_ENVIRONMENT = ("packages", "torch-build", "dynamo-bounds", "libraries", "etcd", "sidecar-flags")


@pytest.fixture(params=OF_THE_ENVIRONMENT)
def each(request: pytest.FixtureRequest) -> Check:
    return next(check for check in runtime.CHECKS if check.id == f"runtime.{request.param}")


def test_before_a_build_there_is_nothing_to_hold_the_environment_to(each: Check) -> None:
    found = look(each, FakeMachine())
    assert (found.status, found.found) == ("skip", "nothing is built yet")


def test_before_an_install_neither(each: Check) -> None:
    fake = installed()
    del fake.files[f"{ROOT}/.venv-cpu/smokestack-install.json"]
    assert look(each, fake).found == "nothing is installed yet"


def test_an_environment_of_an_earlier_build_is_left_to_the_install(each: Check) -> None:
    fake = installed()
    fake.files[f"{ROOT}/dist/cpu/manifest.json"] += "\n"
    assert look(each, fake).found == "what is installed is of another build; the next install replaces it"


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_manifest_or_a_stamp_that_is_none_is_as_good_as_absent(each: Check, text: str) -> None:
    for path in (f"{ROOT}/dist/cpu/manifest.json", f"{ROOT}/.venv-cpu/smokestack-install.json"):
        fake = installed()
        fake.files[path] = text
        assert look(each, fake).status == "skip"


def test_a_changed_environment_is_told_once_and_stops_nothing(each: Check) -> None:
    found = look(each, installed({**PINNED, "vllm": "0.31.0"}))
    assert found.status == ("warn" if each is PACKAGES else "skip")


def test_equal_packages_are_fine() -> None:
    found = look(PACKAGES, installed())
    assert (found.status, found.found) == ("ok", "5 packages, vllm 0.32.0+cpu, torch 2.13.0+cpu, pydantic 2.13.5")


def test_an_exchanged_an_added_and_a_missing_package_are_named_the_important_first() -> None:
    changed = {**PINNED, "vllm": "0.31.0", "aardvark": "1.0"}
    del changed["torch"]
    found = look(PACKAGES, installed(changed))
    assert found.found == (
        "torch absent instead of 2.13.0+cpu; vllm 0.31.0 instead of 0.32.0+cpu; aardvark 1.0 instead of nothing"
    )
    assert found.fix == "./noxw -s install -- --stack cpu --force"


def test_of_many_changes_a_few_are_named() -> None:
    found = look(PACKAGES, installed({**PINNED, **{f"p{index}": "1" for index in range(9)}}))
    assert found.found.endswith(", and 5 more")
    four = look(PACKAGES, installed({**PINNED, **{f"p{index}": "1" for index in range(4)}}))
    assert four.found.endswith("p3 1 instead of nothing")


def torch(cuda: str, backend: str) -> Finding:
    fake = installed(files={"torch/version.py": f"__version__ = '2.13.0'\ndebug = False\n{cuda}\nhip = None\n"})
    return look(TORCH, fake, replace(CPU, torch_backend=backend))


@pytest.mark.parametrize(
    ("cuda", "backend", "status", "found"),
    [
        ("cuda: Optional[str] = None", "cpu", "ok", "torch is built without CUDA"),
        ("cuda = '13.0'", "cu130", "ok", "torch is built for CUDA 13.0"),
        ("cuda: Optional[str] = '12.8'", "cu130", "fail", "torch is built for CUDA 12.8"),
        ("cuda = None", "cu130", "fail", "torch is built without CUDA"),
        ("cuda = '13.0'", "cpu", "fail", "torch is built for CUDA 13.0"),
        ("nothing of the kind", "cpu", "fail", "torch/version.py does not tell"),
    ],
)
def test_torch_is_held_to_the_stacks_backend(cuda: str, backend: str, status: str, found: str) -> None:
    seen = torch(cuda, backend)
    assert (seen.status, seen.found) == (status, found)


def test_a_torch_without_its_version_file_fails() -> None:
    assert look(TORCH, installed()).status == "fail"


def test_a_stack_without_torch_is_not_held_to_one() -> None:
    packages = {"vllm": "1"}
    assert look(TORCH, installed(packages, pinned=packages)).status == "skip"


def bounds(*lines: str, packages: dict[str, str] | None = None) -> Finding:
    there = {**PINNED, **(packages or {})}
    metadata = "Name: ai-dynamo-runtime\n" + "".join(f"Requires-Dist: {line}\n" for line in lines)
    return look(BOUNDS, installed(there, pinned=there, files={"ai_dynamo_runtime-1.6.1.dist-info/METADATA": metadata}))


def test_a_pydantic_within_dynamos_bounds_is_fine() -> None:
    found = bounds("pydantic>=2.10.6,<=2.13.5")
    assert (found.status, found.found) == ("ok", "1 packages, pydantic 2.13.5")


def test_a_pydantic_past_the_bound_is_named_with_who_wants_what() -> None:
    found = bounds("pydantic>=2.10.6,<=2.13.4")
    assert found.status == "fail"
    assert found.found == "pydantic 2.13.5, but ai-dynamo-runtime wants >=2.10.6,<=2.13.4"
    assert found.fix == "./noxw -s lock -- --stack cpu"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("torch (>=2.13)", "ok"),
        ("torch!=2.13.0", "fail"),
        ("torch==2.13", "ok"),
        ("torch<2.13", "fail"),
        ("torch>2.12.9", "ok"),
        ("torch>2.13.0", "fail"),
        ("Torch>=3", "fail"),
        ("torch>=3; extra == 'vllm'", "skip"),
        ("torch==2.*", "skip"),
        ("torch", "skip"),
        ("absent>=3", "skip"),
        ("???", "skip"),
    ],
)
def test_plain_bounds_are_compared_and_what_is_conditional_is_left_out(line: str, status: str) -> None:
    assert bounds(line).status == status
