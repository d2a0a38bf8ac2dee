"""The Dynamo vLLM sidecar: registers one engine with Dynamo, and answers for it.

It talks to its engine over gRPC and publishes the engine's HTTP address as the admin URL. There is one for each engine;
where there are several, each is a component of its own, so that the order of their ranks is known beforehand.
"""

from __future__ import annotations

from harness.probes import HttpProbe
from harness.services.context import ServiceContext, component_name, engine_name, grpc_port, sidecar_name
from harness.services.engine import chosen
from harness.services.spec import ServiceSpec


def spec(context: ServiceContext, index: int) -> ServiceSpec:
    """The system port is required: without one the sidecar ends at once where RL is enabled.

    Nobody is waiting for an answer when a run ends, so the sidecar does not linger for 5 s after SIGTERM.
    """
    config, dialect, name = context.config, context.dialect, sidecar_name(index)
    component = {"DYN_COMPONENT": component_name(index)} if config.engines > 1 else {}
    grpc, http = f"{config.host}:{config.ports[grpc_port(index)]}", context.url(engine_name(index))
    values = {
        "--grpc-endpoint": (grpc,),
        "--vllm-http-endpoint": (http,),
        "--vllm-endpoint": (grpc,),
        "--admin-endpoint": (http,),
        "--model-path": (config.served_model_name,),
        "--rl-discovery-model-name": (config.served_model_name,),
        "--namespace": (config.namespace,),
    }
    return ServiceSpec(
        name=name,
        argv=(*context.command(dialect.sidecar), *chosen(dialect.sidecar_options, values)),
        env=context.dynamo_environment(
            {
                "DYN_SYSTEM_PORT": str(config.ports[name]),
                **dict.fromkeys(dialect.sidecar_variables, http),
                "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
                **component,
                **({"DYN_LORA_ENABLED": "true"} if config.lora and dialect.adapters else {}),
            }
        ),
        cwd=config.tmp_dir,
        log=context.log(name),
        probes=(HttpProbe(f"{name} GET /health", f"{context.url(name)}/health", credentials=context.credentials),),
        ports={name: config.ports[name]},
        stop_grace_s=config.deadlines.stop_grace_s,
    )
