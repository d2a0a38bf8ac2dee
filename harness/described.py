"""A stack that runs, as it is written down for later commands: its addresses, and its processes that live."""

from __future__ import annotations

from collections.abc import Iterable

from harness.process import Process
from harness.proctable import read_boot_id
from harness.services import frontend
from harness.services.context import FRONTEND_PORT, ServiceContext, engine_name, sidecar_name
from harness.standing import Owner, StandingService, StandingStack


def described(context: ServiceContext, processes: Iterable[Process], owner: Owner | None) -> StandingStack:
    """Addresses, processes and logs of what runs now. `owner` is the command that will take it down, if one will."""
    config = context.config
    return StandingStack(
        run_id=config.run_id,
        boot_id=read_boot_id(),
        owner=owner,
        stack=config.stack,
        model=config.served_model_name,
        run_dir=config.run_dir,
        tmp_dir=config.tmp_dir,
        urls=_urls(context),
        services=tuple(_service(process) for process in processes if process.alive()),
    )


def _urls(context: ServiceContext) -> dict[str, str]:
    indices = range(context.config.engines)
    engines = {engine_name(index): context.url(engine_name(index)) for index in indices}
    if context.config.serving != "dynamo":
        return engines
    sidecars = {sidecar_name(index): context.url(sidecar_name(index)) for index in indices}
    ours = {"frontend": context.url(FRONTEND_PORT), "discovery": frontend.discovery_url(context)}
    return {**ours, **engines, **sidecars}


def _service(process: Process) -> StandingService:
    spec = process.spec
    return StandingService(
        **process.record().fields(), log=spec.log, ports=dict(spec.ports), stop_grace_s=spec.stop_grace_s
    )
