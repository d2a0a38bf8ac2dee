"""The caller's own trainer, as the harness deals with it: told where the stack is, followed, and judged by observation.

It speaks no protocol with us. So the stack is looked at before it starts and after it has ended; in between its labels
are followed, the processes are watched, and its end is awaited within one deadline.
"""

from __future__ import annotations

from harness.bringup import observer_of
from harness.calling import HttpBodyError, HttpStatusError
from harness.clock import Deadline, SteadyClock
from harness.environ import callers_path_variable
from harness.errors import Interrupted, TrainingError
from harness.events import CommandEnded, LabelsSeen, Surveyed
from harness.guards import require_no_open_update
from harness.labels import LabelWatch
from harness.manifest import Manifest
from harness.observer import Observer
from harness.poller import assume_alive
from harness.process import Process, describe_exit
from harness.program import Program
from harness.provision import ModelFolder
from harness.services import command as command_service
from harness.services.context import TRAINER
from harness.session import Session
from harness.stack import Stack
from harness.states import labels_of
from harness.vigil import Vigil

PROBE_PROMPTS = ((51, 43, 52, 61, 48, 57), (57, 43, 48, 61, 51), (40, 41, 42, 43, 44, 45, 46, 47))
"""Token ids that every vocabulary has. What they mean does not matter: only whether the answer changes."""

ASK_S = 5.0
"""Granted to one question for a label; an engine in the middle of an update may not answer it."""

LEFT_ASK_S, LEFT_S = 2.0, 10.0
"""Granted to one question once the command has failed, and to all together: one engine that hangs hides no other."""


class OwnTrainer:
    """One run's command, in the place of our trainer."""

    warm = True
    """It trains what the engine serves, so that this has to be something that can be trained on."""

    def __init__(self, session: Session, program: Program) -> None:
        self.session = session
        self.program = program

    def launch(self, stack: Stack, manifest: Manifest, model: ModelFolder) -> None:
        """Nothing yet: the command is told of a stack that is ready. But one that does not exist is noticed here."""
        self.program.resolved(callers_path_variable(stack.context.caller, self.session.config.project_root))

    def hear(self) -> None:
        """It says nothing to us."""

    def close(self) -> None:
        """There is nothing to close."""

    def follow(self, stack: Stack) -> None:
        """Look at the stack before the command may touch it."""
        observer = observer_of(self.session, stack)
        self.session.emit(Surveyed(when="before", engines=observer.look(PROBE_PROMPTS, "the stack before the command")))

    def train(self, stack: Stack) -> None:
        observer = observer_of(self.session, stack)
        self.session.emit(stack.identities("start"))
        self.session.emit(stack.listening("start"))
        self._run_command(stack, observer)
        require_no_open_update(observer)
        engines = observer.look(PROBE_PROMPTS, "the stack after the command")
        self.session.emit(Surveyed(when="after", engines=engines))
        stack.require_same_topology()
        if any(engine.paused for engine in engines):
            self.session.note("an engine is paused: it would not answer, and is not asked for a generation")
        else:
            self.session.emit(observer.generate("after"))
        stack.note_listening()
        self.session.emit(stack.identities("end"))
        self.session.emit(stack.listening("end"))

    def _run_command(self, stack: Stack, observer: Observer) -> None:
        """From its start to its end, whatever that is. Raises TrainingError unless it ended by itself, and well."""
        limit_s, clock = self.session.config.deadlines.command_s, self.session.clock
        began = clock.monotonic()
        process = stack.launch(command_service.spec(stack.context, self.program, stack.topology.workers))
        stack.may_end(TRAINER, with_any_status=True)
        self.session.note(f"{self.program.text} (pid {process.pid}), output in logs/{TRAINER}.log")
        labels = LabelWatch(lambda: labels_of(observer, ASK_S), clock=clock, emit=self.session.emit)

        def ended() -> bool:
            labels.look()
            return process.poll() is not None

        try:
            stack.vigil.until(ended, limit_s)
        except Interrupted:
            self._pass_on(process)
            raise
        seconds, returncode = clock.monotonic() - began, process.poll()
        self.session.emit(CommandEnded(returncode=returncode, seconds=seconds, limit_s=limit_s))
        if returncode != 0:
            raise self._failed(returncode, limit_s, observer)

    def _pass_on(self, process: Process) -> None:
        """A Ctrl-C is for the command as well, which may have more to put away than a SIGTERM leaves it time for."""
        steady = SteadyClock()
        process.interrupt()
        deadline = Deadline.after(steady, self.session.config.deadlines.stop_grace_s)
        while process.alive() and not deadline.passed(steady) and not self.session.signals.urgent.is_set():
            steady.sleep(0.05)

    def _failed(self, returncode: int | None, limit_s: float, observer: Observer) -> TrainingError:
        """With how it left the engines: what it may have been doing to them, nothing here tries to undo."""
        late = returncode is None
        return TrainingError(
            "the command did not end in time" if late else "the command failed",
            expected=f"it ends within {limit_s:g} s" if late else "exit status 0",
            found=f"{'it still runs' if returncode is None else describe_exit(returncode)}; {self._left(observer)}",
            where=self.program.text,
            hint="--trainer-timeout raises the limit" if late else None,
            log=self.session.run_dir.log(TRAINER),
        )

    def _left(self, observer: Observer) -> str:
        """How the engines are now, in words. No answer of theirs, nor that there is none, takes its place."""
        late = HttpStatusError(
            f"no labels within {LEFT_S:g} s", status=None, found="no answer", where="the engines and their sidecars"
        )
        try:
            told = Vigil(self.session.clock, assume_alive).call(lambda: labels_of(observer, LEFT_ASK_S), LEFT_S, late)
        except (HttpStatusError, HttpBodyError) as odd:
            return f"how it left the engines is not known: {odd.what}"
        self.session.emit(LabelsSeen(engines=told))
        return "; ".join(
            f"{one.admin_url} has version {one.engine_label}{', and is paused' if one.paused else ''}" for one in told
        )
