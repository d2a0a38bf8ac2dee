"""All checks, in the order in which they are shown."""

from __future__ import annotations

from scripts.doctor import (
    build_cargo,
    build_compilers,
    build_cuda,
    build_packages,
    build_rust,
    build_sources,
    gpu,
    host_disk,
    host_git,
    host_memory,
    host_paths,
    host_platform,
    host_python,
    host_system,
    runtime,
)
from scripts.doctor.registry import Check

CHECKS: tuple[Check, ...] = (
    *host_platform.CHECKS,
    *host_system.CHECKS,
    *host_python.CHECKS,
    *host_git.CHECKS,
    *host_memory.CHECKS,
    *host_disk.CHECKS,
    *host_paths.CHECKS,
    *build_sources.CHECKS,
    *build_packages.CHECKS,
    *host_memory.BUILD_CHECKS,
    *host_python.BUILD_CHECKS,
    *build_compilers.CHECKS,
    *build_rust.CHECKS,
    *build_cargo.CHECKS,
    *build_cuda.CHECKS,
    *gpu.CHECKS,
    *runtime.CHECKS,
)
