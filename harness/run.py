"""One smoke run: install, start, train and refit under observation, tear down, judge.

The teardown and the verdict happen whatever came before: a failed check, a fault, an interrupt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from harness import dryrun
from harness.bringup import first_generation, install, leave_standing, make_model, new_stack, observer_of, phase
from harness.errors import DoctorError, TrainingError, during_training
from harness.events import BEFORE_TRANSFER, PerturbationObserved, Phase, Stage, Teardown
from harness.leases import Leases
from harness.manifest import Manifest
from harness.observer import Observer
from harness.process import describe_exit
from harness.provision import ModelFolder
from harness.report import environment as machine
from harness.report import junit
from harness.report.stream import print_document
from harness.report.verdict import Outcome, judge_run, unjudged
from harness.request import Request
from harness.sabotage import for_trainer
from harness.services import trainer as trainer_service
from harness.services.context import ETCD_PORT, FRONTEND_PORT, RENDEZVOUS_PORT, TRAINER
from harness.session import Session, opened
from harness.stack import Stack
from harness.standing import StandingStack, forget
from harness.takedown import describe
from harness.teardown import Leftovers
from harness.training import Follower, Plan, TrainerChannel
from harness.watch import LAST_WORDS_S

T = TypeVar("T")


def smoke(request: Request) -> int:
    """Run it. Returns the exit status of the outcome contract."""
    if request.dry_run:
        dryrun.show(request, train=True)
        return 0
    with opened(request) as session:
        run = SmokeRun(session)
        outcome = run.execute()
        session.console.summary(outcome)
    if run.standing is not None:
        describe(run.standing, sys.stderr)
    if request.json:
        print_document(outcome.verdict.document())
    return outcome.exit_code


def run_once(request: Request) -> Outcome:
    """One run for a caller that tells its outcome itself."""
    with opened(request) as session:
        return SmokeRun(session).execute()


class SmokeRun:
    """The steps of one run over its session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.channel = TrainerChannel()
        self.stack: Stack | None = None
        self.standing: StandingStack | None = None

    def execute(self) -> Outcome:
        """Everything from the first event to the written verdict."""
        session = self.session
        session.console.on_event(session.events.emit("run.started", config=session.config.model_dump(mode="json")))
        self._attempt(self._run)
        self._tear_down()
        if not self._failed():
            self._attempt(session.events.require_written)
        return self._judge()

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """Do it. What it raises becomes the run's failure, since what follows must happen all the same."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - the boundary: no fault may leave a stack behind or cost the verdict
            self.session.record_failure(error)
            return None

    def _run(self) -> None:
        with phase(self.session, "install"):
            manifest = install(self.session)
        with phase(self.session, "ready"):
            model = make_model(self.session, manifest)
            stack = self.stack = new_stack(self.session, manifest, meanwhile=self._hear_trainer)
            self._launch_trainer(stack, manifest, model)
            stack.start()
            first_generation(self.session, observer_of(self.session, stack))
            follower = self._follow(stack)
        leases = Leases.of(stack.context.url(ETCD_PORT))
        with phase(self.session, "train"), during_training(), leases.naming_loss():
            self._train(stack, follower)

    def _launch_trainer(self, stack: Stack, manifest: Manifest, model: ModelFolder) -> None:
        """Started before the engine, so that imports and warm-up run beside the engine's own start."""
        config = self.session.config
        settings: dict[str, Any] = {
            "model_dir": model.serve,
            "warm_cache": model.warm_cache,
            "device": manifest.platform,
            "steps": config.steps,
            "seed": config.grpo.seed,
            "bucket_bytes": config.bucket_bytes,
            "grpo": config.grpo.model_dump(),
            "deadlines": config.deadlines.model_dump(include={"request_s", "rendezvous_s", "refit_s", "step_s"}),
            "backend": manifest.refit_backend,
            "probe_new_tokens": config.probe_new_tokens,
            "sabotage": for_trainer(config.sabotage),
        }
        file = self.session.run_dir.write_json("trainer.json", settings)
        events_fd, commands_fd = self.channel.child_fds
        spec = trainer_service.spec(stack.context, config_file=file, events_fd=events_fd, commands_fd=commands_fd)
        stack.launch(spec)
        self.channel.child_started()

    def _hear_trainer(self) -> None:
        """Its failure ends whatever is being waited for: it says more than its exit status will."""
        self.channel.hear(self.session.emit_from_trainer)
        self.channel.raise_fault(self.session.run_dir.log(TRAINER))

    def _follow(self, stack: Stack) -> Follower:
        """Wait for the trainer, and look at the stack before the first transfer: as it is, and destroyed."""
        follower = Follower(
            channel=self.channel,
            clock=self.session.clock,
            deadlines=self.session.config.deadlines,
            log=self.session.run_dir.log(TRAINER),
            watch=stack.watch,
            emit=self.session.emit_from_trainer,
            observe=lambda version: self._observe(stack, observer, prompts, version),
            observe_stage=lambda stage: self._observe_stage(stack, observer, prompts, stage),
        )
        ready = follower.await_ready()
        prompts: list[list[int]] = ready["probe_prompts"]
        observer = replace(observer_of(self.session, stack), stop_token_ids=ready["stop_token_ids"])
        self._observe(stack, observer, prompts, BEFORE_TRANSFER)
        self.session.emit(observer.destroy(prompts))
        return follower

    def _train(self, stack: Stack, follower: Follower) -> None:
        self.session.emit(stack.identities("start"))
        self.session.emit(stack.listening("start"))
        follower.train(self._plan(stack), self.session.config.steps)
        stack.may_end(TRAINER)
        self.session.emit(observer_of(self.session, stack).generate("after"))
        self._await_trainers_end(stack)
        self.session.emit(stack.identities("end"))
        self.session.emit(stack.listening("end"))

    def _await_trainers_end(self, stack: Stack) -> None:
        """It is done; it must now also leave, and with status 0."""
        process, log = stack.processes[TRAINER], self.session.run_dir.log(TRAINER)
        seconds = self.session.config.deadlines.request_s
        if not stack.vigil.until(lambda: process.poll() is not None, seconds):
            raise TrainingError(
                "the trainer is done but does not end",
                expected=f"its process ends within {seconds:g} s",
                found="it still runs",
                log=log,
            )
        stack.vigil.until(lambda: self.channel.ended, LAST_WORDS_S)
        returncode = process.poll()
        if returncode != 0:
            raise TrainingError(
                "the trainer was done, and then failed",
                expected="its process ends with exit status 0",
                found="it still runs" if returncode is None else describe_exit(returncode),
                log=log,
            )
        stack.watch()

    def _observe(self, stack: Stack, observer: Observer, prompts: list[list[int]], version: int) -> None:
        """Looked at, and only then compared: what may continue is what discovery lists right before that."""
        self.session.emit(observer.observe(prompts, version))
        stack.note_listening()
        stack.require_same_topology()

    def _observe_stage(self, stack: Stack, observer: Observer, prompts: list[list[int]], stage: Stage) -> None:
        engines = observer.look(prompts, f"the {stage} weights")
        self.session.emit(PerturbationObserved(stage=stage, engines=engines))
        stack.require_same_topology()

    def _plan(self, stack: Stack) -> Plan:
        config, topology = self.session.config, stack.topology
        return Plan(
            frontend_url=stack.context.url(FRONTEND_PORT),
            served_model_name=config.served_model_name,
            engines=[
                {"admin_url": w.admin_url, "world_size": w.world_size, "rank_offset": w.transfer_offset}
                for w in topology.workers
            ],
            world_size=topology.world_size + 1,
            master_address=config.host,
            master_port=config.ports[RENDEZVOUS_PORT],
            headers=stack.context.credentials.request_headers(),
            header_sources=stack.context.credentials.described(),
        )

    def _tear_down(self) -> None:
        """Each step whatever became of the one before. Without an answer about what is left there is no evidence."""
        session = self.session
        began = session.clock.monotonic()
        self._attempt(self.channel.close)
        if self._attempt(self._leave_standing):
            return
        # Stopping again finishes what a fault broke off, and is the only way to know what is left.
        left = self._attempt(self._stop) or self._attempt(self._stop)
        files = self._attempt(session.scratch.remove)
        seconds = session.clock.monotonic() - began
        if left is not None and files is not None:
            teardown = Teardown(
                survivors=left.survivors, ports=left.ports, files=(*left.files, *files), seconds=seconds
            )
            session.emit(teardown)
            if teardown.clean:
                self._attempt(lambda: forget(session.run_dir.path))
        session.emit(Phase(phase="teardown", seconds=seconds))

    def _stop(self) -> Leftovers:
        if self.stack is None:
            return Leftovers(survivors=(), ports=(), seconds=0.0)
        return self.stack.stop(urgent=self.session.signals.urgent.is_set)

    def _leave_standing(self) -> bool:
        """With `--keep-up` and a run that went well: whether the stack is now another command's to end."""
        if self.stack is None or not self.session.config.keep_up or self._failed():
            return False
        self.standing = leave_standing(self.session, self.stack)
        return True

    def _failed(self) -> bool:
        return any(event["kind"] == "failure" for event in self.session.events.events)

    def _judge(self) -> Outcome:
        """Judge what was recorded, and write what tools and people read: the verdict first."""
        session, run_dir = self.session, self.session.run_dir
        outcome = self._outcome()
        try:
            run_dir.write_json("verdict.json", outcome.verdict.document())
        except DoctorError as error:
            # It can still be told, and is not a pass: whoever looks for the file would find none.
            session.record_failure(error)
            outcome = self._outcome()
        self._write_beside("junit.xml", lambda name: run_dir.write_text(name, junit.render(outcome).decode()))
        root = session.config.project_root
        self._write_beside("environment.json", lambda name: run_dir.write_json(name, machine.describe(root)))
        return outcome

    def _outcome(self) -> Outcome:
        events, config = self.session.events.events, self.session.config
        try:
            return judge_run(events, config)
        except Exception as error:  # noqa: BLE001 - the boundary: a fault in judging is an outcome, too
            failed = self.session.record_failure(error)
            return unjudged(failed, stack=config.stack, model=config.model, steps=config.steps, run_dir=config.run_dir)

    def _write_beside(self, name: str, write: Callable[[str], object]) -> None:
        """A file that says nothing which the verdict does not: lacking it is reported, and changes no outcome."""
        try:
            write(name)
        except Exception as error:  # noqa: BLE001 - the boundary: the verdict stands
            self.session.warn(f"{name} could not be written: {error}")
