"""What pyproject.toml cannot say: the C extension, and the Rust front end that is optional unless it is required."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools_rust import Binding, RustExtension, Strip

ROOT = Path(__file__).resolve().parent
DEVICES = ("cuda", "cpu", "empty")


def c_extensions() -> list[Extension]:
    """The kernels: none for the device "empty", and nothing but a note of its sources for the others."""
    device = os.environ.get("VLLM_TARGET_DEVICE", "cuda")
    if device not in DEVICES:
        raise SystemExit(f"VLLM_TARGET_DEVICE is {device!r}: expected one of {', '.join(DEVICES)}")
    if device == "cuda":
        raise SystemExit("CUDA_HOME is not set")
    if device == "empty":
        return []
    # Absolute folders, as CMake passes them: the headers' __FILE__ has this machine's path in it.
    include = [str(ROOT / "csrc"), str(ROOT / "third_party" / "frames")]
    return [
        Extension(
            "vllm._C",
            ["csrc/module.c"],
            include_dirs=include,
            define_macros=[("VLLM_TARGET_DEVICE", f'"{device}"')],
            extra_compile_args=["-g"],
        )
    ]


def rust_extensions() -> list[RustExtension]:
    """The front end. Without the toolchain it is left out, and nobody is told, unless the caller requires it."""
    return [
        RustExtension(
            "vllm.vllm-rs",
            path="rust/src/cmd/Cargo.toml",
            args=["--bin", "vllm-rs"],
            binding=Binding.Exec,
            strip=Strip.No,
            debug=False,
            optional=os.environ.get("VLLM_REQUIRE_RUST_FRONTEND") != "1",
        )
    ]


setup(ext_modules=c_extensions(), rust_extensions=rust_extensions())
