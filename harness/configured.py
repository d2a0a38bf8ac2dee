"""The topology that a run is configured to have: known before anything is started, and without asking anybody.

For what is shown of a run that does not take place, and for engines that nobody registers (`--control plain-vllm`).
"""

from __future__ import annotations

from harness.services.context import ServiceContext, engine_name, sidecar_name
from harness.topology import Topology, Worker, rank_offsets

COMPONENT = "engine"


def configured_topology(context: ServiceContext, *, sidecars: bool = True) -> Topology:
    """The engines in the order of their names; discovery may order them otherwise. Without sidecars, no system URLs."""
    config = context.config
    sizes = config.tensor_parallel
    return Topology(
        tuple(
            Worker(
                component=COMPONENT,
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
