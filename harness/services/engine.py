"""The vLLM engine: `vllm-rs` serves HTTP and gRPC, and starts the Python engine behind itself.

What stands before `--` goes to the Rust front end, what stands after it to the Python engine. An option on the wrong
side is silently useless.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.gpus import engine_gpus
from harness.plaintext import printable
from harness.probes import Fatal, HttpProbe, JsonProbe, Outcome, Pending, Ready, TcpProbe
from harness.services.context import ServiceContext, engine_name, grpc_port
from harness.services.spec import ServiceSpec

PLUGIN = "smokestack"
"""Our entry point in vLLM's group `vllm.general_plugins`."""

NAMES_SHOWN = 200
"""Characters of the models that a server lists, in a message."""

API_KEY_VARIABLE = "VLLM_API_KEY"
"""With it the engine asks for the key on `/v1/*`, and nowhere else: the admin routes answer without (vLLM 0.32)."""

CPU_KV_CACHE_GIB = 1
MAX_LORA_RANK = 8
"""The smallest value that vLLM takes (1, 8, 16, …) and that is not below the rank of the payload's adapter, 4."""

NICE_ON_CPU = 10
"""The rest of the stack, the trainer and the harness need the same cores, and for less: see `priority`."""


def spec(context: ServiceContext, index: int) -> ServiceSpec:
    """Raises ValueError while the folder of the model is not known."""
    config = context.config
    if config.model_dir is None:
        raise ValueError("the engine needs a model folder")
    name = engine_name(index)
    return ServiceSpec(
        name=name,
        argv=(*_rust_front_end(context, index, config.model_dir), "--", *_python_engine(context, index)),
        env=context.environment(_own_environment(context, index)),
        cwd=config.tmp_dir,
        log=context.log(name),
        probes=_probes(context, index),
        ports={port: config.ports[port] for port in (name, grpc_port(index))},
        stop_grace_s=config.deadlines.stop_grace_s,
        nice=NICE_ON_CPU if context.manifest.platform == "cpu" else 0,
    )


def _rust_front_end(context: ServiceContext, index: int, model_dir: Path) -> tuple[str, ...]:
    config, dialect = context.config, context.dialect
    values: dict[str, tuple[str, ...]] = {
        "--served-model-name": (config.served_model_name,),
        "--host": (config.host,),
        "--port": (str(config.ports[engine_name(index)]),),
        "--grpc-port": (str(config.ports[grpc_port(index)]),),
        "--enable-scale-out": (),
        "--enable-prompt-tokens-details": (),
        "--python": (str(context.python),),
    }
    model = str(model_dir) if dialect.renames_models else config.served_model_name
    program = str(config.environment / "bin" / "vllm-rs")
    return (program, "serve", model, *chosen(dialect.front_end_options, values))


def _python_engine(context: ServiceContext, index: int) -> tuple[str, ...]:
    config = context.config
    values: dict[str, tuple[str, ...]] = {
        "--dtype": (config.precision,),
        "--max-model-len": (str(config.max_model_len),),
        "--enforce-eager": (),
        "--worker-extension-cls": (context.refit.worker,),
    }
    if context.refit.routes:
        backend = json.dumps({"backend": context.manifest.refit_backend}, separators=(",", ":"))
        values["--weight-transfer-config"] = (backend,)
    if _takes_adapters(context):
        values |= {"--enable-lora": (), "--max-loras": ("1",), "--max-lora-rank": (str(MAX_LORA_RANK),)}
    ranks = config.tensor_parallel[index]
    if ranks > 1:
        values["--tensor-parallel-size"] = (str(ranks),)
    return chosen([option for option in context.dialect.engine_options if option in values], values)


def chosen(options: Sequence[str], values: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The options, each followed by its values, as a command line has them."""
    return tuple(word for option in options for word in (option, *values[option]))


def _own_environment(context: ServiceContext, index: int) -> dict[str, str]:
    config, on_cpu = context.config, context.manifest.platform == "cpu"
    own = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_HOST_IP": config.host,
        "VLLM_PLUGINS": PLUGIN,
        "NO_COLOR": "1",
        **context.hub(),
        **context.gpus(engine_gpus(config, index)),
    }
    if "--enforce-eager" in context.dialect.engine_options:
        # Even an eager engine compiles its samplers with Inductor, which needs a C++ compiler and takes seconds.
        own["TORCHDYNAMO_DISABLE"] = "1"
    if context.credentials.api_key is not None:
        # By the environment, which only this user can read; an argument could be read by everybody.
        own[API_KEY_VARIABLE] = context.credentials.api_key
    if _takes_adapters(context):
        # Without the first there are no routes for adapters, without the second no folder is good enough for one.
        own["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
        own["VLLM_RUNTIME_LORA_ALLOWED_PATH_PREFIXES"] = str(config.tmp_dir)
    if on_cpu:
        own["VLLM_CPU_KVCACHE_SPACE"] = str(CPU_KV_CACHE_GIB)
    if on_cpu and config.world_size > 1:
        # Ranks that each bind themselves to all cores stand in each other's way.
        own |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    return own


def _takes_adapters(context: ServiceContext) -> bool:
    """Asked for, and known of the engine; of another one discovery shows whether its worker offers them."""
    return context.config.lora and context.dialect.adapters


def _probes(context: ServiceContext, index: int) -> tuple[HttpProbe | JsonProbe | TcpProbe, ...]:
    config, name, base = context.config, engine_name(index), context.url(engine_name(index))

    def judge_models(document: object) -> Outcome:
        return judge_published(document, config.served_model_name)

    return (
        HttpProbe(f"{name} GET /health", f"{base}/health", credentials=context.credentials),
        JsonProbe(f"{name} GET /v1/models", f"{base}/v1/models", judge_models, credentials=context.credentials),
        TcpProbe(f"{name} gRPC port", config.host, config.ports[grpc_port(index)]),
    )


def judge_published(document: object, model: str) -> Outcome:
    """Whether a `/v1/models` document lists `model`."""
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        return Fatal("this is not a list of models")
    names = [entry.get("id") for entry in document["data"] if isinstance(entry, dict)]
    if model not in names:
        return Pending(
            f"{model!r} is not published; there is {printable(str(names), NAMES_SHOWN) if names else 'nothing'}"
        )
    return Ready(f"{model} is published")
