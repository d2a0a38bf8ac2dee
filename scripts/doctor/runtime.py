"""The checks of the group runtime, in the order in which they are shown."""

from __future__ import annotations

from scripts.doctor import (
    runtime_libraries,
    runtime_limits,
    runtime_memory,
    runtime_model,
    runtime_network,
    runtime_packages,
    runtime_ports,
    runtime_runs,
    runtime_services,
    runtime_variables,
)

CHECKS = (
    *runtime_packages.CHECKS,
    *runtime_libraries.CHECKS,
    *runtime_services.CHECKS,
    *runtime_runs.CHECKS,
    *runtime_memory.CHECKS,
    *runtime_ports.CHECKS,
    *runtime_network.CHECKS,
    *runtime_variables.CHECKS,
    *runtime_limits.CHECKS,
    *runtime_model.CHECKS,
)
