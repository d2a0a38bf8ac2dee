"""One smoke run: install, start, train and refit under observation, tear down, judge.

The teardown and the verdict happen whatever came before: a failed check, a fault, an interrupt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from harness import dryrun
from harness.bringup import first_generation, install, leave_standing, make_model, new_stack, observer_of, phase
from harness.command import OwnTrainer
from harness.config import ControlKind
from harness.control import with_control
from harness.errors import DoctorError, Interrupted, during_training
from harness.events import GpuMemory, Phase, Teardown
from harness.gpumemory import GpuWatch
from harness.manifest import Manifest
from harness.report import environment as machine
from harness.report import junit
from harness.report.console import Console
from harness.report.stream import print_document
from harness.report.verdict import Outcome, judge_run, unjudged
from harness.request import Request
from harness.session import Session, opened
from harness.stack import Stack
from harness.standing import StandingStack, forget
from harness.takedown import describe
from harness.teardown import Leftovers
from harness.trainer import Trainer

T = TypeVar("T")


def smoke(request: Request) -> int:
    """Run it. Returns the exit status of the outcome contract."""
    if request.dry_run:
        dryrun.show(request, train=True)
        return 0
    with opened(request) as session:
        run = run_of(session)
        outcome = run.execute()
        session.console.summary(outcome)
    if run.standing is not None:
        describe(run.standing, sys.stderr)
    if request.control is not None:
        outcome = _compared(request.control, request, outcome)
    if request.json:
        print_document(outcome.verdict.document())
    return outcome.exit_code


def _compared(kind: ControlKind, request: Request, first: Outcome) -> Outcome:
    """With the control that belongs to it, both told."""

    def run(asked: Request) -> Outcome:
        with opened(asked) as session:
            outcome = run_of(session).execute()
            session.console.summary(outcome)
            return outcome

    both = with_control(kind, request, first, run)
    if both.verdict.control is not None:
        with Console(sys.stderr, quiet=request.quiet) as console:
            console.comparison(both.verdict.control)
    return both


def run_once(request: Request) -> Outcome:
    """One run for a caller that tells its outcome itself. Raises Interrupted when it may not go on after that."""
    with opened(request) as session:
        outcome = run_of(session).execute()
        if session.signals.received and outcome.exit_code != Interrupted.exit_code:
            raise Interrupted("the run had come to its end before it was asked to end")
        return outcome


def run_of(session: Session) -> SmokeRun:
    """The session's run: the one place where a fault that the harness makes on purpose comes in."""
    if session.config.sabotage is None:
        return SmokeRun(session)
    from harness.sabotage.acts import sabotaged

    return sabotaged(session)


def trainer_of(session: Session) -> Trainer | OwnTrainer:
    """Ours, or the caller's own."""
    own = session.request.trainer
    return Trainer(session) if own is None else OwnTrainer(session, own)


class SmokeRun:
    """The steps of one run over its session."""

    def __init__(self, session: Session, trainer: Callable[[Session], Trainer | OwnTrainer] = trainer_of) -> None:
        self.session = session
        self.trainer = trainer(session)
        self.stack: Stack | None = None
        self.standing: StandingStack | None = None
        self.gpu_memory: GpuMemory | None = None

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
            manifest = self._install()
            self._look_at_gpus()
        with phase(self.session, "ready"):
            model = make_model(self.session, manifest, warm=self.trainer.warm)
            stack = self.stack = new_stack(self.session, manifest, meanwhile=self.trainer.hear)
            self.trainer.launch(stack, manifest, model)
            stack.start()
            with stack.leases.naming_loss():
                first_generation(self.session, observer_of(self.session, stack))
                self.trainer.follow(stack)
        with phase(self.session, "train"), during_training(), stack.leases.naming_loss():
            self.trainer.train(stack)

    def _install(self) -> Manifest:
        return install(self.session)

    def _tear_down(self) -> None:
        """Each step whatever became of the one before. Without an answer about what is left there is no evidence."""
        session = self.session
        began = session.clock.monotonic()
        self._attempt(self.trainer.close)
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
        self._attempt(self._look_at_gpus_again)
        session.emit(Phase(phase="teardown", seconds=seconds))

    def _look_at_gpus(self) -> None:
        if self.session.config.gpus:
            self.gpu_memory = GpuWatch.of(self.session).before()
            self.session.emit(self.gpu_memory)

    def _look_at_gpus_again(self) -> None:
        """After everything was ended: what is in use now was left behind."""
        if self.gpu_memory is not None:
            self.session.emit(GpuWatch.of(self.session).after(self.gpu_memory))

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
        conceal = session.request.credentials.conceal
        self._write_beside("junit.xml", lambda name: run_dir.write_text(name, junit.render(outcome, conceal).decode()))
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
