"""The Dynamo frontend: the public OpenAI routes, token-in/token-out generation, and RL worker discovery."""

from __future__ import annotations

from harness.probes import HttpProbe, JsonProbe, Outcome
from harness.services.context import DISCOVERY_PORT, FRONTEND, FRONTEND_PORT, ServiceContext
from harness.services.engine import judge_published
from harness.services.spec import ServiceSpec


def spec(context: ServiceContext) -> ServiceSpec:
    config, planes = context.config, context.manifest.planes
    return ServiceSpec(
        name=FRONTEND,
        argv=(
            *context.command(context.dialect.frontend),
            *("--http-host", config.host),
            *("--http-port", str(config.ports[FRONTEND_PORT])),
            *("--namespace", config.namespace),
            *("--discovery-backend", planes.discovery),
            *("--request-plane", planes.request),
            *("--event-plane", planes.event),
            *("--router-min-initial-workers", "1"),
        ),
        env=context.dynamo_environment(
            {
                "DYN_RL_PORT": str(config.ports[DISCOVERY_PORT]),
                # Without it `/inference/v1/generate` answers 404.
                "DYN_VLLM_ENABLE_INFERENCE_V1_GENERATE": "true",
                "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": "1",
            }
        ),
        cwd=config.tmp_dir,
        log=context.log(FRONTEND),
        probes=(
            HttpProbe("frontend GET /health", f"{context.url(FRONTEND_PORT)}/health", credentials=context.credentials),
        ),
        ports={name: config.ports[name] for name in (FRONTEND_PORT, DISCOVERY_PORT)},
        stop_grace_s=config.deadlines.stop_grace_s,
    )


def discovery_url(context: ServiceContext) -> str:
    """Where the frontend answers which workers there are."""
    return f"{context.url(DISCOVERY_PORT)}/v1/rl/workers"


def model_probe(context: ServiceContext) -> JsonProbe:
    """Whether the frontend publishes the model; true some time after its worker was discovered."""
    model = context.config.served_model_name

    def judge(document: object) -> Outcome:
        return judge_published(document, model)

    url = f"{context.url(FRONTEND_PORT)}/v1/models"
    return JsonProbe(f"frontend publishes {model}", url, judge, credentials=context.credentials)
