"""The caller's own trainer: a command that is told by variables where the stack is.

It is the caller's program, so it has the caller's environment, less what would lead it to another stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.environ import callers_environment, callers_path_variable
from harness.gpus import trainer_gpus
from harness.program import Program
from harness.refits import chosen
from harness.services import frontend
from harness.services.context import FRONTEND_PORT, RENDEZVOUS_PORT, TRAINER, ServiceContext
from harness.services.spec import ServiceSpec
from harness.topology import TRAINER_RANKS, Worker

VARIABLES: Mapping[str, str] = {
    "SMOKESTACK_FRONTEND_URL": "where to sample: the frontend, without /v1",
    "SMOKESTACK_DISCOVERY_URL": "which engines there are: the whole address of /v1/rl/workers",
    "SMOKESTACK_ADMIN_URLS": "the engines' admin routes, in rank order, separated by commas",
    "SMOKESTACK_SYSTEM_URLS": "their sidecars, in the same order",
    "SMOKESTACK_ENGINE_WORLD_SIZES": "ranks of each engine, in the same order",
    "SMOKESTACK_RANK_OFFSETS": "first rank of each engine in a transfer group whose rank 0 is the trainer",
    "SMOKESTACK_INFERENCE_WORLD_SIZE": "ranks of all engines",
    "SMOKESTACK_TRANSFER_WORLD_SIZE": "the same with the trainer's one",
    "SMOKESTACK_RENDEZVOUS_HOST": "an address for the trainer's rendezvous",
    "SMOKESTACK_RENDEZVOUS_PORT": "a port on it that was chosen for this run and is free",
    "SMOKESTACK_REFIT_PROTOCOL": "how engines take weights, as --refit names it: native, collective-rpc or filesystem",
    "SMOKESTACK_REFIT_BACKEND": "the engines' weight transfer: gloo or nccl",
    "SMOKESTACK_MODEL": "the model's published name",
    "SMOKESTACK_MODEL_DIR": "the folder that the engines have loaded",
    "SMOKESTACK_STEPS": "of --steps",
    "SMOKESTACK_SEED": "of --seed",
    "SMOKESTACK_RUN_DIR": "the run's folder; what is written there stays with its evidence",
    "SMOKESTACK_API_KEY_VARIABLE": "the variable that has the API key; not set where the stack asks for none",
}
"""What the command is told, and what each means. `docs/trainer.md` has the table."""


def spec(context: ServiceContext, program: Program, workers: Sequence[Worker]) -> ServiceSpec:
    """Raises UsageError when the program is not there."""
    own = variables(context, workers)
    return ServiceSpec(
        name=TRAINER,
        argv=program.resolved(callers_path_variable(context.caller, context.config.project_root)),
        env=callers_environment(context.caller, project=context.config.project_root, own=own),
        cwd=program.cwd,
        log=context.log(TRAINER),
        stop_grace_s=context.config.deadlines.stop_grace_s,
    )


def variables(context: ServiceContext, workers: Sequence[Worker]) -> dict[str, str]:
    """The documented variables for a stack of these workers, in rank order."""
    config, world_size = context.config, sum(worker.world_size for worker in workers)
    told = {
        "SMOKESTACK_FRONTEND_URL": context.url(FRONTEND_PORT),
        "SMOKESTACK_DISCOVERY_URL": frontend.discovery_url(context),
        "SMOKESTACK_ADMIN_URLS": ",".join(worker.admin_url for worker in workers),
        "SMOKESTACK_SYSTEM_URLS": ",".join(worker.system_url for worker in workers),
        "SMOKESTACK_ENGINE_WORLD_SIZES": ",".join(str(worker.world_size) for worker in workers),
        "SMOKESTACK_RANK_OFFSETS": ",".join(str(worker.transfer_offset) for worker in workers),
        "SMOKESTACK_INFERENCE_WORLD_SIZE": str(world_size),
        "SMOKESTACK_TRANSFER_WORLD_SIZE": str(world_size + TRAINER_RANKS),
        "SMOKESTACK_RENDEZVOUS_HOST": config.host,
        "SMOKESTACK_RENDEZVOUS_PORT": str(config.ports[RENDEZVOUS_PORT]),
        "SMOKESTACK_REFIT_PROTOCOL": chosen(config.refit, context.dialect),
        "SMOKESTACK_REFIT_BACKEND": context.manifest.refit_backend,
        "SMOKESTACK_MODEL": config.served_model_name,
        "SMOKESTACK_MODEL_DIR": str(config.model_dir),
        "SMOKESTACK_STEPS": str(config.steps),
        "SMOKESTACK_SEED": str(config.grpo.seed),
        "SMOKESTACK_RUN_DIR": str(config.run_dir),
    }
    told |= context.gpus(trainer_gpus(config))
    variable, key = context.credentials.api_key_variable, context.credentials.api_key
    if variable is not None and key is not None:
        # The variable itself as well: its name may be one that is not handed on.
        told |= {"SMOKESTACK_API_KEY_VARIABLE": variable, variable: key}
    return told
