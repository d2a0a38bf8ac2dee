"""The trainer: the payload's process, at the other end of every refit. The harness talks to it over two pipes."""

from __future__ import annotations

from pathlib import Path

from harness.gpus import trainer_gpus
from harness.services.context import TRAINER, ServiceContext
from harness.services.spec import ServiceSpec


def spec(context: ServiceContext, *, config_file: Path, events_fd: int, commands_fd: int) -> ServiceSpec:
    """`config_file` is the trainer's own configuration; both descriptors are inherited by the child."""
    gloo = {"GLOO_SOCKET_IFNAME": "lo"} if context.config.host == "127.0.0.1" else {}
    return ServiceSpec(
        name=TRAINER,
        argv=(
            *(str(context.python), "-m", "smokestack_payload.trainer"),
            *("--config", str(config_file)),
            *("--events-fd", str(events_fd)),
            *("--commands-fd", str(commands_fd)),
        ),
        env=context.environment({**gloo, **context.gpus(trainer_gpus(context.config))}),
        cwd=context.config.tmp_dir,
        log=context.log(TRAINER),
        stop_grace_s=context.config.deadlines.stop_grace_s,
        pass_fds=(events_fd, commands_fd),
    )
