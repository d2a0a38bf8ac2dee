"""One smoke run: install, start, train and refit under observation, tear down, judge.

The teardown and the verdict happen whatever came before: a failed check, a fault, an interrupt.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from harness import dryrun
from harness.bringup import first_generation, install, make_model, new_stack, observer_of, phase
from harness.clock import Deadline
from harness.errors import SmokestackError, TrainingError
from harness.events import BEFORE_TRANSFER, Phase, Teardown
from harness.manifest import Manifest
from harness.observer import Observer
from harness.provision import ModelFolder
from harness.report import environment as machine
from harness.report import junit
from harness.report.verdict import Outcome, judge_run
from harness.request import Request
from harness.services import trainer as trainer_service
from harness.services.context import FRONTEND_PORT, RENDEZVOUS_PORT, TRAINER
from harness.session import STANDING_MARK, Session, opened
from harness.stack import Stack
from harness.training import Follower, Plan, TrainerChannel


def smoke(request: Request) -> int:
    """Run it. Returns the exit status of the outcome contract."""
    if request.dry_run:
        dryrun.show(request, train=True)
        return 0
    with opened(request) as session:
        outcome = SmokeRun(session).execute()
        session.console.summary(outcome)
    if request.json:
        sys.stdout.write(json.dumps(outcome.verdict.document(), indent=2) + "\n")
    return outcome.exit_code


class SmokeRun:
    """The steps of one run over its session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.channel = TrainerChannel()
        self.stack: Stack | None = None

    def execute(self) -> Outcome:
        """Everything from the first event to the written verdict."""
        session = self.session
        session.console.on_event(session.events.emit("run.started", config=session.config.model_dump(mode="json")))
        try:
            self._run()
        except SmokestackError as error:
            session.record_failure(error)
        except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not leave a stack behind
            session.record_failure(error)
        finally:
            self._tear_down()
        return self._judge()

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
        with phase(self.session, "train"):
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
        }
        file = self.session.run_dir.write_json("trainer.json", settings)
        events_fd, commands_fd = self.channel.child_fds
        spec = trainer_service.spec(stack.context, config_file=file, events_fd=events_fd, commands_fd=commands_fd)
        stack.launch(spec)
        self.channel.child_started()

    def _hear_trainer(self) -> None:
        self.channel.hear(self.session.emit_from_trainer)

    def _follow(self, stack: Stack) -> Follower:
        """Wait for the trainer, and look at the stack once before the first transfer."""
        follower = Follower(
            channel=self.channel,
            clock=self.session.clock,
            deadlines=self.session.config.deadlines,
            log=self.session.run_dir.log(TRAINER),
            watch=stack.watch,
            emit=self.session.emit_from_trainer,
            observe=lambda version: self._observe(stack, observer, prompts, version),
        )
        ready = follower.await_ready()
        prompts: list[list[int]] = ready["probe_prompts"]
        observer = replace(observer_of(self.session, stack), stop_token_ids=ready["stop_token_ids"])
        self._observe(stack, observer, prompts, BEFORE_TRANSFER)
        return follower

    def _train(self, stack: Stack, follower: Follower) -> None:
        self.session.emit(stack.identities("start"))
        follower.train(self._plan(stack), self.session.config.steps)
        stack.may_end(TRAINER)
        self.session.emit(observer_of(self.session, stack).generate("after"))
        self._await_trainers_end(stack)
        stack.require_same_topology()
        self.session.emit(stack.identities("end"))

    def _await_trainers_end(self, stack: Stack) -> None:
        """It is done; it must now also leave, and with status 0."""
        clock, seconds = self.session.clock, self.session.config.deadlines.request_s
        if stack.processes[TRAINER].wait(Deadline.after(clock, seconds), clock) is None:
            raise TrainingError(
                "the trainer is done but does not end",
                expected=f"its process ends within {seconds:g} s",
                found="it still runs",
                log=self.session.run_dir.log(TRAINER),
            )
        stack.watch()

    def _observe(self, stack: Stack, observer: Observer, prompts: list[list[int]], version: int) -> None:
        stack.require_same_topology()
        self.session.emit(observer.observe(prompts, version))

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
        )

    def _tear_down(self) -> None:
        session = self.session
        began = session.clock.monotonic()
        self.channel.close()
        if session.config.keep_up and not self._failed() and self.stack is not None:
            (session.scratch.path / STANDING_MARK).touch()
            self.stack.describe().write()
            return
        left = None if self.stack is None else self.stack.stop(urgent=session.signals.urgent.is_set)
        session.emit(
            Teardown(
                survivors=left.survivors if left else (),
                ports=left.ports if left else (),
                files=tuple(session.scratch.remove()),
                seconds=session.clock.monotonic() - began,
            )
        )
        session.emit(Phase(phase="teardown", seconds=session.clock.monotonic() - began))

    def _failed(self) -> bool:
        return any(event["kind"] == "failure" for event in self.session.events.events)

    def _judge(self) -> Outcome:
        """Judge what was recorded, and write what tools and people read."""
        session = self.session
        outcome = judge_run(session.events.events, session.config)
        session.run_dir.write_json("environment.json", machine.describe(session.config.project_root))
        session.run_dir.write_text("junit.xml", junit.render(outcome).decode())
        session.run_dir.write_json("verdict.json", outcome.verdict.document())
        return outcome
