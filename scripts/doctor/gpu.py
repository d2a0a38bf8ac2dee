"""The checks of the group GPU, in the order in which they are shown. For a stack without GPUs each is skipped."""

from __future__ import annotations

from scripts.doctor import gpu_devices, gpu_driver, gpu_memory, gpu_nccl, gpu_topology

CHECKS = (
    *gpu_driver.CHECKS,
    *gpu_devices.CHECKS,
    *gpu_memory.CHECKS,
    *gpu_topology.CHECKS,
    *gpu_nccl.CHECKS,
)
