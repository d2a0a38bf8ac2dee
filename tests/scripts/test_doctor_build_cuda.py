"""The doctor on the CUDA toolkit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_builds import NVCC, STACK, found, machine


def test_a_machine_without_cuda_is_told_the_toolkit_that_fits() -> None:
    made = machine()
    del made.answers["/usr/local/cuda/bin/nvcc --version"]
    fix = "sudo apt-get install -y cuda-toolkit-13-0 && export CUDA_HOME=/usr/local/cuda-13.0   # "
    for name in ("cuda-home", "nvcc"):
        assert found(name, made).status == "fail"
        assert found(name, made).fix.startswith(fix)
    assert {found(name, made).status for name in ("cuda-architectures", "cuda-host-compiler")} == {"skip"}


def test_nvcc_alone_is_no_toolkit() -> None:
    made = machine()
    del made.files["/usr/local/cuda/include/cuda_runtime.h"]
    assert found("cuda-home", made).found == "/usr/local/cuda has nvcc, but no cuda_runtime.h"


@pytest.mark.parametrize(
    ("release", "words"),
    [("12.8", "another major release than torch's"), ("13.1", "nvcc 13.1 in /usr/local/cuda")],
)
def test_nvcc_of_another_release_fails(release: str, words: str) -> None:
    made = machine()
    made.answers["/usr/local/cuda/bin/nvcc --version"] = NVCC.replace("13.0,", f"{release},")
    finding = found("nvcc", made)
    assert finding.status == "fail"
    assert words in finding.found


def test_of_several_toolkits_the_pinned_one_is_taken() -> None:
    made = machine(environ={"CUDA_HOME": "/opt/cuda"}, links={"/usr/bin/nvcc": "/etc/alternatives/nvcc"})
    made.answers["/opt/cuda/bin/nvcc --version"] = NVCC.replace("13.0,", "12.8,")
    assert found("nvcc", made).found == "nvcc 13.0 in /usr/local/cuda"
    del made.answers["/usr/local/cuda/bin/nvcc --version"]
    assert found("nvcc", made).found.startswith("nvcc 12.8 in /opt/cuda")
    made.programs["nvcc"] = "/usr/bin/nvcc"
    made.links["/etc/alternatives/nvcc"] = "/srv/cuda/bin/nvcc"
    made.answers["/srv/cuda/bin/nvcc --version"] = NVCC
    assert found("nvcc", made).found == "nvcc 13.0 in /srv/cuda"


@pytest.mark.parametrize(
    ("architectures", "status"),
    [(["9.0", "9.0a"], "ok"), (["10.0a", "12.0+PTX"], "ok"), (["9.0", "15.0"], "fail"), ([], "warn")],
)
def test_nvcc_knows_the_architectures(architectures: list[str], status: str) -> None:
    vllm = {**STACK.recipes["vllm"], "cuda_archs": architectures}
    finding = found("cuda-architectures", machine(), replace(STACK, recipes={**STACK.recipes, "vllm": vllm}))
    assert finding.status == status
    if status == "fail":
        assert finding.found == "nvcc does not know 15.0; it knows 75 80 90 100 120"


@pytest.mark.parametrize(("gcc", "status"), [("15.1.0", "ok"), ("16.0.1", "fail"), ("", "fail")])
def test_gcc_is_not_too_new_for_nvcc(gcc: str, status: str) -> None:
    made = machine()
    made.answers["gcc -dumpfullversion"] = gcc
    finding = found("cuda-host-compiler", made)
    assert finding.status == status
    if gcc == "16.0.1":
        assert finding.fix.startswith("sudo apt-get install -y gcc-15 g++-15 && sudo update-alternatives --install")
