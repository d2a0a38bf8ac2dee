"""From an open session to a ready stack: install, check the pins, make the model's folder, start, find the engines.

Shared by `smoke`, which goes on to train, and `up`, which leaves the stack running; and so is the way to leave it so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.clock import Deadline
from harness.dialect import Dialect, dialect_named
from harness.environ import service_environment
from harness.errors import NotReadyError
from harness.events import BaseEvent, Phase, PhaseName, ServiceReady, ServiceStarted, Topology
from harness.evidence.check import budget_of
from harness.fitness import require_bearable
from harness.gpu_options import require_nccl
from harness.gpus import assigned
from harness.guards import require_no_open_update, require_unpaused, require_world_sizes
from harness.inflight import GenerationsInFlight
from harness.manifest import Manifest, installed_pins, load_manifest, require_installed
from harness.models import ModelChoice
from harness.observer import Observer
from harness.provision import ModelFolder, Provisioner
from harness.refits import chosen
from harness.request import Request, require_platform
from harness.services.context import FRONTEND, ServiceContext, engine_name
from harness.session import Session
from harness.stack import Stack, no_more
from harness.standing import Owner, StandingStack


@contextmanager
def phase(session: Session, name: PhaseName) -> Iterator[None]:
    """Time a phase; recorded only when it ends well. Raises DoctorError when the timeline cannot be written."""
    began = session.clock.monotonic()
    yield
    session.emit(Phase(phase=name, seconds=session.clock.monotonic() - began))
    session.events.require_written()


def install(session: Session) -> Manifest:
    """The stack, installed as its manifest says; the evidence of what is really there is recorded."""
    provide(session)
    return read_installed(session)


def provide(session: Session) -> None:
    """An installed environment, which is this run's to use from here on."""
    config = session.config
    asking = provisioner(session, session.note)
    asking.examine(_require_fit(session, asking))
    session.request.model.require_there()
    asking.install()
    # Only now: an install needs the environment alone. Whatever came in between is seen by the stamp.
    session.in_use.take(Deadline.after(session.clock, config.deadlines.install_s), session.clock, session.note)


def read_installed(session: Session) -> Manifest:
    """The manifest of the run's environment; what really lies in that environment is recorded."""
    config = session.config
    manifest = load_manifest(config.project_root, config.stack)
    require_installed(config.project_root, manifest, config.environment)
    dialect = dialect_named(manifest.dialect)
    session.use(
        platform=manifest.platform,
        gpus=_gpus(session, manifest),
        refit=chosen(config.refit, dialect),
        engine_labels=dialect.weight_routes,
        counts_cached_tokens=dialect.counts_cached_tokens,
    )
    session.use(mismatch=session.config.mismatch or budget_of(session.config))
    session.emit(installed_pins(manifest, config.environment))
    return manifest


def _require_fit(session: Session, asking: Provisioner) -> tuple[str, ...] | None:
    """What the caller asked for fits the stack, before anything is built; the GPUs that the doctor is to look at.

    Only a manifest tells what a stack is for. Without a choice the doctor looks at what is visible.
    """
    request = session.request
    asked = (request.platform, request.gpus, request.refit, request.packing, request.rendezvous)
    if not any(asked):
        return None
    manifest = Manifest.model_validate(asking.preview()["manifest"])
    require_fitting(request, manifest)
    gpus = _gpus(session, manifest) if request.gpus is not None or session.config.world_size > 1 else ()
    return gpus or None


def require_fitting(request: Request, manifest: Manifest) -> None:
    """Raise UsageError for what was asked for and this stack does not have."""
    require_platform(request.platform, manifest.platform, manifest.stack)
    dialect = dialect_named(manifest.dialect)
    dialect.require(request.rendezvous)
    kind, backend = chosen(request.refit, dialect), manifest.refit_backend
    require_nccl(request.about_nccl, kind=kind, backend=backend, stack=manifest.stack)


def _gpus(session: Session, manifest: Manifest) -> tuple[str, ...]:
    ranks = session.config.world_size
    return assigned(session.request.gpus, os.environ, platform=manifest.platform, ranks=ranks)


def make_model(session: Session, manifest: Manifest, *, warm: bool = False) -> ModelFolder:
    """The folder that the engine serves. `warm` asks for the warmed-up weights of the tiny model."""
    config = session.config
    environment = service_environment(
        os.environ,
        platform=manifest.platform,
        environment=config.environment,
        tmp_dir=config.tmp_dir,
        cache_dir=config.project_root / ".cache" / "models",
    )
    session.note(f"model {session.request.model.served_name}")
    maker = provisioner(session, lambda _line: None)
    made = maker.model(session.request.model, config.environment, environment, warm=warm)
    serve = made.warm_cache if warm and made.warm_cache is not None else made.serve
    session.use(
        model_dir=serve,
        served_model_name=served_name(session.request.model, serve, dialect_named(manifest.dialect)),
    )
    for remark in require_bearable(session.config):
        session.warn(remark)
    return made


def served_name(choice: ModelChoice, folder: Path, dialect: Dialect) -> str:
    """What the model is called by everybody: its own name, or what it is served from where that cannot be renamed."""
    return choice.served_name if dialect.renames_models or choice.kind == "hub" else str(folder)


def new_stack(session: Session, manifest: Manifest, *, meanwhile: Callable[[], None] = no_more) -> Stack:
    """The run's stack. It is written down as it grows, so that a later command finds it whatever ends this one."""
    owner = Owner.this_process()
    session.scratch.mark(session.config.run_id)

    def emit(event: BaseEvent) -> None:
        if isinstance(event, ServiceStarted | ServiceReady | Topology):
            stack.describe(owner).write()
        session.emit(event)

    stack = Stack(
        ServiceContext(session.config, manifest, os.environ, session.request.credentials),
        clock=session.clock,
        emit=emit,
        meanwhile=meanwhile,
        inherited=session.in_use.fds,
    )
    return stack


def leave_standing(session: Session, stack: Stack) -> StandingStack:
    """Hand the running stack over to later commands: from here on it is not this command's to end.

    Raises `Interrupted` when the user wants it ended after all, `DoctorError` when it cannot be written down; it is
    then still this command's.
    """
    standing = stack.describe()
    try:
        standing.write()
        session.scratch.keep()
        session.clock.sleep(0)
    except BaseException:
        session.scratch.keep_no_longer()
        raise
    return standing


def observer_of(session: Session, stack: Stack) -> Observer:
    """Asks the stack independently of the trainer."""
    return Observer(
        topology=stack.topology,
        frontend_url=stack.context.serving_url,
        model=session.config.served_model_name,
        clock=session.clock,
        new_tokens=session.config.probe_new_tokens,
        request_s=session.config.deadlines.request_s,
        observe_s=2 * session.config.deadlines.request_s,
        watch=stack.watch,
        credentials=stack.context.credentials,
        account=stack.context.refit.account,
    )


def in_flight_of(session: Session, stack: Stack) -> GenerationsInFlight:
    """Long generations that are in flight at the refits after the last step."""
    deadlines = session.config.deadlines
    return GenerationsInFlight(
        topology=stack.topology,
        frontend_url=stack.context.serving_url,
        model=session.config.served_model_name,
        max_model_len=session.config.max_model_len,
        clock=session.clock,
        request_s=deadlines.request_s,
        stream_s=4 * deadlines.request_s + 2 * deadlines.refit_s,
        watch=stack.watch,
        credentials=stack.context.credentials,
    )


def first_generation(session: Session, observer: Observer) -> None:
    """The last part of being ready: one real answer through the frontend. Raises NotReadyError without one."""
    require_world_sizes(observer)
    require_unpaused(observer)
    require_no_open_update(observer)
    answer = observer.generate("before")
    session.emit(answer)
    if answer.status != 200 or answer.completion_tokens < 1:
        raise NotReadyError(
            "the stack looks ready but does not generate",
            expected=f"a chat completion of {observer.frontend_url}",
            found=f"HTTP {answer.status}: {answer.text}" if answer.status else f"no answer: {answer.text}",
            where=observer.frontend_url,
            log=session.run_dir.log(FRONTEND if session.config.serving == "dynamo" else engine_name(0)),
        )


def provisioner(session: Session, progress: Callable[[str], None]) -> Provisioner:
    """Runs the one-shot commands of this session, interruptible like everything else."""
    deadline = Deadline.after(session.clock, session.config.deadlines.install_s)
    return Provisioner(
        root=session.config.project_root,
        stack=session.config.stack,
        logs=session.run_dir.logs,
        clock=session.clock,
        deadline=deadline,
        progress=progress,
        run_id=session.config.run_id,
        urgent=session.signals.urgent.is_set,
    )
