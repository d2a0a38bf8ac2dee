"""The topology that a run is configured to have: known before anything is started, and without asking anybody.

For what is shown of a run that does not take place, and for engines that nobody registers (`--control plain-vllm`).
"""

from __future__ import annotations

from harness.services.context import ServiceContext, component_name, engine_name, sidecar_name
from harness.topology import Configured, Expectation, Topology, Worker, rank_offsets

COMPONENT = "backend"
"""What Dynamo calls an engine that is the only one."""


def configured_topology(context: ServiceContext, *, sidecars: bool = True) -> Topology:
    """The engines in the order of their names, which is that of their components. Without sidecars, no system URLs."""
    config = context.config
    sizes = config.tensor_parallel
    return Topology(
        tuple(
            Worker(
                component=component_name(index) if config.engines > 1 else COMPONENT,
                instance_id=engine_name(index),
                admin_url=context.url(engine_name(index)),
                system_url=context.url(sidecar_name(index)) if sidecars else "",
                model=config.served_model_name,
                world_size=sizes[index],
                rank_offset=offset,
            )
            for index, offset in enumerate(rank_offsets(sizes))
        )
    )


def expected_engines(context: ServiceContext) -> Expectation:
    """What discovery has to list for this run."""
    config = context.config
    engines = {
        context.url(engine_name(index)): Configured(engine_name(index), ranks)
        for index, ranks in enumerate(config.tensor_parallel)
    }
    return Expectation(config.served_model_name, config.world_size, engines)
