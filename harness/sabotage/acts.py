"""Faults that the harness makes on purpose: each is the real run with one step of it done wrong.

`run` asks `sabotaged` for such a run where `--sabotage` was given, and knows no more of it. What a fault starts, it
ends. The trainer's own faults are made in the payload; such a run is the real one here.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from harness.admin import FrontendClient
from harness.bringup import provide, read_installed
from harness.calling import HttpClient
from harness.clock import Deadline
from harness.ending import KILL_LIMIT_S, POLL_S, send
from harness.errors import DoctorError
from harness.events import Destroyed, Generation, Observed, Teardown
from harness.manifest import Manifest
from harness.observer import Observer
from harness.poller import Wait, wait_all
from harness.process import Process
from harness.run import SmokeRun
from harness.sabotage import environments, records
from harness.sabotage.commands import COMMANDS, commanded
from harness.services import exposed
from harness.services.context import ETCD_PORT, FRONTEND_PORT, engine_name
from harness.services.spec import ServiceSpec
from harness.session import Session
from harness.sockets import sockets_of
from harness.stack import Stack
from harness.standing import forget
from harness.trainer import Trainer

STRIKES_AT = 1
"""The version at whose observation a running stack is struck: the first that was trained."""

LEAKED = "leaked"
"""The service that a leaked process says it belongs to; the stack has none of that name."""


def sabotaged(session: Session) -> SmokeRun:
    """The session's run with the fault that was asked for."""
    return ACTS.get(session.config.sabotage or "", SmokeRun)(session)


class _WrongPinInstalled(SmokeRun):
    """Everything is run from an environment in which one package is installed in another version."""

    def _install(self) -> Manifest:
        provide(self.session)
        config = self.session.config
        wrong = environments.with_wrong_package(config.environment, config.tmp_dir / "environment")
        self.session.use(environment=wrong)
        return read_installed(self.session)


class _LeakedProcess(SmokeRun):
    """A process of the run that no service of the stack knows outlives the teardown, and then ends here."""

    def _tear_down(self) -> None:
        leaked = Process(_sleeper(self.session), run_id=self.session.config.run_id)
        self._attempt(leaked.start)
        try:
            super()._tear_down()
        finally:
            leaked.kill()
        if leaked.started and self._left_nothing_but(leaked.pid):
            forget(self.session.run_dir.path)

    def _left_nothing_but(self, pid: int) -> bool:
        """Without an account of the teardown, a stack may be left, and what is written of it is needed."""
        told = [Teardown.model_validate(one) for one in self.session.events.events if one["kind"] == "teardown"]
        left = [([survivor.pid for survivor in one.survivors], one.ports, one.files) for one in told]
        return left == [([pid], (), ())]


class _NotDestroyed(Trainer):
    def destroy(self, observer: Observer, prompts: list[list[int]]) -> Destroyed:
        return Destroyed(engines=observer.look(prompts, "the weights that were left as they are"))


class _ExposedListener(Trainer):
    """While the policy is trained, a process of the run listens on all addresses of the machine."""

    def train(self, stack: Stack) -> None:
        listener = stack.launch(exposed.spec(stack.context))
        _wait_for(stack, lambda: _listens(listener), "a listener")
        super().train(stack)


class _EngineRestarted(Trainer):
    """The engine is killed and started anew on its ports while nobody looks."""

    def observe(self, stack: Stack, observer: Observer, prompts: list[list[int]], version: int) -> Observed:
        if version != STRIKES_AT:
            return super().observe(stack, observer, prompts, version)
        with self._restarted(stack.processes[engine_name(0)]):
            return super().observe(stack, observer, prompts, version)

    @contextmanager
    def _restarted(self, engine: Process) -> Iterator[None]:
        config, clock = self.session.config, self.session.clock
        self._kill(engine)
        log = engine.spec.log.with_stem(f"{engine.spec.name}-again")
        successor = Process(replace(engine.spec, log=log), run_id=config.run_id)
        successor.start()
        try:
            deadline = Deadline.after(clock, config.deadlines.engine_s)
            wait = Wait(engine.spec.name, engine.spec.probes, deadline, log=log)
            wait_all([wait], clock=clock, alive=successor.check_alive)
            yield
        finally:
            successor.stop(urgent=self.session.signals.urgent.is_set)

    def _kill(self, engine: Process) -> None:
        """All of it, and without a word: its ports have to be free. `Process.kill` would have it taken for stopped."""
        deadline = Deadline.after(self.session.clock, KILL_LIMIT_S)
        while rows := engine.snapshot():
            for row in rows:
                send(row.id, signal.SIGKILL)
            if deadline.passed(self.session.clock):
                raise DoctorError("the sabotage could not kill the engine", found=f"{len(rows)} processes are left")
            self.session.clock.sleep(POLL_S)


class _ReplacedTopology(Trainer):
    """Discovery lists the engine as another instance than the one that was pinned."""

    def observe(self, stack: Stack, observer: Observer, prompts: list[list[int]], version: int) -> Observed:
        if version == STRIKES_AT:
            records.replace_instance(stack.context.url(ETCD_PORT))
            _wait_for(stack, lambda: stack.current_topology() != stack.topology, "discovery with another instance")
        return super().observe(stack, observer, prompts, version)


class _UnpublishedModel(Trainer):
    """The frontend has lost the model when it is asked after the last refit, and finds it again afterwards."""

    def generate_after(self, stack: Stack) -> Generation:
        url, credentials = stack.context.url(FRONTEND_PORT), stack.context.credentials
        models = FrontendClient(HttpClient(url, credentials=credentials)).models
        with records.without_model(stack.context.url(ETCD_PORT)):
            _wait_for(stack, lambda: not models(), "a frontend without a model")
            return super().generate_after(stack)


def _wait_for(stack: Stack, there: Callable[[], bool], what: str) -> None:
    """A fault that does not come about must not look like one that was not noticed."""
    seconds = stack.context.config.deadlines.request_s
    if not stack.vigil.until(there, seconds):
        raise DoctorError("the sabotage had no effect", expected=f"{what} within {seconds:g} s", found="none")


def _sleeper(session: Session) -> ServiceSpec:
    """It ends by itself after ten minutes, should nobody end it."""
    program = "import time; time.sleep(600)"
    return ServiceSpec(
        name=LEAKED,
        argv=(sys.executable, "-I", "-S", "-c", program),
        env={},
        cwd=session.run_dir.path,
        log=session.run_dir.log(LEAKED),
    )


def _listens(process: Process) -> bool:
    return bool(sockets_of({row.pid for row in process.snapshot()}).listening)


ACTS: Mapping[str, Callable[[Session], SmokeRun]] = {
    "not-destroyed": partial(SmokeRun, trainer=_NotDestroyed),
    "wrong-pin-installed": _WrongPinInstalled,
    "exposed-listener": partial(SmokeRun, trainer=_ExposedListener),
    "leaked-process": _LeakedProcess,
    "engine-restarted-behind-the-sidecar": partial(SmokeRun, trainer=_EngineRestarted),
    "replaced-topology": partial(SmokeRun, trainer=_ReplacedTopology),
    "unpublished-model": partial(SmokeRun, trainer=_UnpublishedModel),
    **dict.fromkeys(COMMANDS, commanded),
}
"""Those of the registry that are made by the harness, by name."""
