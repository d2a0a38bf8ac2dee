"""`--dry-run`: every command of a run with its environment, and nothing started, built or written.

The manifest comes from the build plane's own dry run, so that it works in a fresh clone. What only a run decides is
shown as a placeholder in angle brackets; ports are free ones of this moment, or those that were asked for.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bringup import require_fitting, served_name
from harness.clock import Deadline, InterruptibleClock
from harness.config import Packing, RunConfig
from harness.configured import configured_topology, expected_engines
from harness.dialect import dialect_named
from harness.ending import never
from harness.events import Worker
from harness.gpus import assigned
from harness.manifest import Manifest
from harness.ports import PortRoom, port_names
from harness.provision import Provisioner
from harness.ranks import ranks, table
from harness.request import Request
from harness.services import command as own_trainer
from harness.services import engine, etcd, frontend, sidecar, trainer
from harness.services.context import TRAINER, ServiceContext
from harness.services.spec import ServiceSpec
from harness.signals import InterruptSignals
from harness.topology import topology_event

RUN, SCRATCH, RECIPE = "<run>", "<scratch>", "<recipe>"
MADE = {"tiny": "base", "smollm2": "float32"}
WARM = {**MADE, "tiny": "warm"}
"""What a stack serves that is left up, or that is for the caller's own trainer: nobody brings the warmed-up weights."""


@dataclass(frozen=True)
class Command:
    """One process: argv, its complete environment, its working directory, its share of the cores (see nice(2))."""

    service: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    nice: int = 0


def show(request: Request, *, train: bool) -> None:
    """Print it to standard output; with `--json` as one document. `train` includes the trainer."""
    answer = _preview(request)
    manifest = Manifest.model_validate(answer["manifest"])
    require_fitting(request, manifest)
    context = _context(request, manifest, train=train)
    commands = _commands(request, context, train=train)
    workers = _group(context)
    if request.json:
        document: dict[str, Any] = {
            "build": answer["would"],
            "commands": [vars(command) for command in commands],
            "ranks": ranks(workers),
        }
        if request.control is not None:
            document["control"] = [command.service for command in commands if _is_of_control(command)]
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        shell = _as_shell(answer["would"], commands, own=train and request.trainer is not None)
        told = ["", "# the transfer group, once discovery tells the same", *(f"# {line}" for line in table(workers))]
        sys.stdout.write(shell + "\n".join(told) + "\n")
        if request.control is not None:
            again = ", ".join(command.service for command in commands if _is_of_control(command))
            sys.stdout.write(f"\n# then the control, {request.control}: {again} once more, on ports of their own\n")


def _is_of_control(command: Command) -> bool:
    """Whether a control run, which has nothing of Dynamo, starts such a service as well."""
    return command.service == TRAINER or command.service.startswith("engine-")


def _group(context: ServiceContext) -> tuple[Worker, ...]:
    topology = configured_topology(context)
    return topology_event(topology, expected_engines(context)).workers


def _preview(request: Request) -> dict[str, Any]:
    """The build plane's account of what `install` would do, and the manifest that it would lead to."""
    with InterruptSignals() as signals, tempfile.TemporaryDirectory(prefix="smokestack-") as folder:
        clock = InterruptibleClock(signals.interrupt)
        provisioner = Provisioner(
            root=request.root,
            stack=request.stack,
            logs=Path(folder),
            clock=clock,
            deadline=Deadline.after(clock, request.deadlines.install_s),
            progress=lambda _line: None,
            run_id=f"dry-run-{secrets.token_hex(8)}",
            urgent=never,
        )
        return provisioner.preview()


def _context(request: Request, manifest: Manifest, *, train: bool) -> ServiceContext:
    config = _config(request, manifest, MADE if train and request.trainer is None else WARM)
    return ServiceContext(config, manifest, os.environ, request.credentials)


def _commands(request: Request, context: ServiceContext, *, train: bool) -> list[Command]:
    indices = range(context.config.engines)
    specs = [etcd.spec(context), *(engine.spec(context, index) for index in indices), frontend.spec(context)]
    specs += [sidecar.spec(context, index) for index in indices]
    if train:
        specs = _with_trainer(specs, context, request)
    own = TRAINER if train and request.trainer is not None else None
    return [
        Command(spec.name, spec.argv, _shown(spec.env, request, of_caller=spec.name == own), str(spec.cwd), spec.nice)
        for spec in specs
    ]


def _with_trainer(specs: list[ServiceSpec], context: ServiceContext, request: Request) -> list[ServiceSpec]:
    """Ours is started first, the caller's own last: it is told of a stack that is ready."""
    if request.trainer is None:
        file = context.config.run_dir / "trainer.json"
        return [trainer.spec(context, config_file=file, events_fd=3, commands_fd=4), *specs]
    return [*specs, own_trainer.spec(context, request.trainer, configured_topology(context).workers)]


def _shown(env: Mapping[str, str], request: Request, *, of_caller: bool = False) -> dict[str, str]:
    """Which variable holds the key, and not the key; of the caller's own environment only what is changed in it."""
    credentials = request.credentials
    secret = f"<value of {credentials.api_key_variable}>"
    shown = {name: secret if value == credentials.api_key else value for name, value in env.items()}
    return {name: value for name, value in shown.items() if not of_caller or os.environ.get(name) != env[name]}


def _config(request: Request, manifest: Manifest, made_in: Mapping[str, str]) -> RunConfig:
    choice = request.model
    made = request.root / ".cache" / "models" / f"{choice.kind}-{RECIPE}" / made_in.get(choice.kind, "")
    if choice.kind == "hub" and choice.hub_cache is not None:
        made = choice.hub_cache / f"models--{choice.served_name.replace('/', '--')}" / "snapshots" / "<revision>"
    serve = choice.folder or made
    return RunConfig(
        run_id=RUN,
        run_dir=request.run_dir or request.root / "runs" / RUN,
        project_root=request.root,
        stack=request.stack,
        platform=manifest.platform,
        environment=request.root / manifest.environment,
        model=choice.name,
        model_dir=serve,
        hub_cache=choice.hub_cache,
        served_model_name=served_name(choice, serve, dialect_named(manifest.dialect)),
        starts_untrained=choice.starts_untrained,
        steps=request.steps,
        refit=request.refit,
        lora=request.lora,
        tensor_parallel=request.tensor_parallel,
        packing=request.packing or Packing(),
        rendezvous=request.rendezvous or "tcp",
        gpus=assigned(request.gpus, os.environ, platform=manifest.platform, ranks=sum(request.tensor_parallel)),
        ports=_ports(request),
        tmp_dir=Path("/tmp") / SCRATCH,
        grpo=request.grpo,
        mismatch=request.mismatch,
        deadlines=request.deadlines,
        trainer=request.trainer,
    )


def _ports(request: Request) -> dict[str, int]:
    """Leased together, so that they are distinct, and given back at once. Raises UsageError for a taken fixed port."""
    room, names = PortRoom(), port_names(len(request.tensor_parallel))
    with ExitStack() as leases:
        chosen = {name: leases.enter_context(room.fixed(name, port)).port for name, port in request.ports.items()}
        chosen |= {name: leases.enter_context(room.free()).port for name in names if name not in chosen}
    return {name: chosen[name] for name in names}


def _as_shell(build: list[str], commands: list[Command], *, own: bool) -> str:
    """As a shell would run it: what all share first, then each command with what it adds.

    The caller's `own` trainer comes last, and has its caller's environment.
    """
    ours = commands[:-1] if own else commands
    shared = dict(set.intersection(*(set(command.env.items()) for command in ours)))
    lines = [f"# would {step}" for step in build] or ["# build and install: nothing to do"]
    lines += ["", f"# the environment of every process{' but the last' if own else ''} (nothing else is inherited)"]
    lines += [f"{name}={shlex.quote(value)}" for name, value in sorted(shared.items())]
    for command in commands:
        added = "" if command in ours else ", with your environment and"
        lines += ["", f"# {command.service}, in {command.cwd}{added}"]
        own_lines = command.env.items() if command not in ours else command.env.items() - shared.items()
        lines += [f"{name}={shlex.quote(value)} \\" for name, value in sorted(own_lines)]
        nice = ("nice", "-n", str(command.nice)) if command.nice else ()
        lines.append(shlex.join([*nice, *command.argv]))
    return "\n".join(lines) + "\n"
