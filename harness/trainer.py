"""The trainer of one run, as the harness deals with it: launched, heard, followed while the stack is observed, awaited.

What it says comes over its channel, and the order of its events is `training`'s; here each turn is tied to the stack.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, cycle, islice
from typing import Any

from harness.adapters import try_adapter
from harness.bringup import in_flight_of, observer_of
from harness.channel import TrainerChannel
from harness.configured import expected_engines
from harness.errors import RefitError, TrainingError
from harness.events import BEFORE_TRANSFER, Destroyed, Generation, Observed, PerturbationObserved, Stage
from harness.inspection import slices_of
from harness.manifest import Manifest
from harness.observer import Observer
from harness.process import describe_exit
from harness.provision import ModelFolder
from harness.sabotage import for_trainer
from harness.services import trainer as trainer_service
from harness.services.context import RENDEZVOUS_PORT, TRAINER, ServiceContext
from harness.session import Session
from harness.stack import Stack
from harness.states import pauses_of
from harness.timing import time_requests
from harness.training import Follower, Plan
from harness.watch import LAST_WORDS_S

TIMED_PROMPT = tuple(range(40, 72))
"""Token ids that every vocabulary has, and no whole block of the KV cache: nothing of it is cached."""
CACHE_PROMPT_TOKENS = 300
"""More than two blocks of the KV cache (128 tokens each on the CPU), and less than `max_model_len`."""

ASK_PAUSED_S = 2.0
PAUSED = {True: "is paused", False: "is not paused", None: "does not answer"}


class Trainer:
    """One run's trainer. `hear` may be called at any time; it is to be closed however the run ends."""

    warm = False
    """What the engine serves at first has to be other than what transfer 0 brings."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.channel = TrainerChannel()
        self._follower: Follower | None = None
        self._slices: list[dict[str, object]] = []

    def launch(self, stack: Stack, manifest: Manifest, model: ModelFolder) -> None:
        """Started before the engine, so that imports and warm-up run beside the engine's own start."""
        file = self.session.run_dir.write_json("trainer.json", settings_of(stack.context, model))
        events_fd, commands_fd = self.channel.child_fds
        spec = trainer_service.spec(stack.context, config_file=file, events_fd=events_fd, commands_fd=commands_fd)
        stack.launch(spec)
        self.channel.child_started()

    def close(self) -> None:
        self.channel.close()

    def hear(self) -> None:
        """Its failure ends whatever is being waited for: it says more than its exit status will."""
        self.channel.hear(self.session.emit_from_trainer)
        self.channel.raise_fault(self.session.run_dir.log(TRAINER))

    def follow(self, stack: Stack) -> None:
        """Wait for the trainer, and look at the stack before the first transfer: as it is, and destroyed."""
        in_flight = in_flight_of(self.session, stack) if self.session.config.engine_labels else None
        follower = Follower(
            channel=self.channel,
            clock=self.session.clock,
            deadlines=self.session.config.deadlines,
            log=self.session.run_dir.log(TRAINER),
            watch=stack.watch,
            emit=self.session.emit_from_trainer,
            observe=lambda version: self.observe(stack, observer, prompts, version),
            observe_stage=lambda stage: self._observe_stage(stack, observer, prompts, stage),
            before_stage=lambda stage: in_flight.begin(stage, prompts[0]) if in_flight else "wait",
            after_stage=lambda stage: self.session.emit(in_flight.end(stage)) if in_flight else None,
            observe_adapter=(lambda told: self._observe_adapter(observer, prompts, told)) if self._lora else None,
        )
        ready = follower.await_ready()
        prompts: list[list[int]] = ready["probe_prompts"]
        observer = replace(
            observer_of(self.session, stack),
            stop_token_ids=ready["stop_token_ids"],
            cache_prompt=tuple(islice(cycle(chain(*prompts)), CACHE_PROMPT_TOKENS)),
        )
        self._slices = slices_of(self.observe(stack, observer, prompts, BEFORE_TRANSFER).engines)
        self.session.emit(self.destroy(observer, prompts))
        self._follower = follower

    def train(self, stack: Stack) -> None:
        """Raises RuntimeError before `follow`."""
        if self._follower is None:
            raise RuntimeError("nobody follows the trainer")
        self.session.emit(stack.identities("start"))
        self.session.emit(stack.listening("start"))
        try:
            self._follower.train(self._plan(stack), self.session.config.steps)
        except RefitError as failed:
            self._tell_paused(stack, failed)
            raise
        stack.may_end(TRAINER)
        self.session.emit(self.generate_after(stack))
        self.await_end(stack)
        self._time_requests(stack)
        self.session.emit(stack.identities("end"))
        self.session.emit(stack.listening("end"))

    def _tell_paused(self, stack: Stack, failed: RefitError) -> None:
        """Which engines are paused is what the trainer says; here is what each of them says itself."""
        expected = expected_engines(stack.context)
        states = pauses_of(observer_of(self.session, stack), ASK_PAUSED_S)
        told = ", ".join(f"{expected.name_of(url) or url} {PAUSED[state]}" for url, state in states.items())
        failed.found = "; ".join([*([failed.found] if failed.found else []), f"asked afterwards: {told}"])

    def _time_requests(self, stack: Stack) -> None:
        """Only where there is something to compare them with; nobody else computes by now."""
        config = self.session.config
        if config.control is not None or config.serving != "dynamo":
            for event in time_requests(observer_of(self.session, stack), TIMED_PROMPT):
                self.session.emit(event)

    def await_end(self, stack: Stack) -> None:
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

    def destroy(self, observer: Observer, prompts: list[list[int]]) -> Destroyed:
        return observer.destroy(prompts)

    def generate_after(self, stack: Stack) -> Generation:
        return observer_of(self.session, stack).generate("after")

    def observe(self, stack: Stack, observer: Observer, prompts: list[list[int]], version: int) -> Observed:
        """Looked at, and only then compared: what may continue is what discovery lists right before that."""
        observed = observer.observe(prompts, version)
        self.session.emit(observed)
        stack.note_listening()
        stack.require_same_topology()
        return observed

    def _observe_stage(self, stack: Stack, observer: Observer, prompts: list[list[int]], stage: Stage) -> None:
        engines = observer.look(prompts, f"the {stage} weights")
        self.session.emit(PerturbationObserved(stage=stage, engines=engines))
        stack.require_same_topology()

    @property
    def _lora(self) -> bool:
        return self.session.config.lora

    def _observe_adapter(self, observer: Observer, prompts: list[list[int]], told: dict[str, Any]) -> None:
        self.session.emit(try_adapter(observer, told["name"], told["path"], prompts))

    def _plan(self, stack: Stack) -> Plan:
        config, topology = self.session.config, stack.topology
        return Plan(
            frontend_url=stack.context.serving_url,
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
            slices=self._slices,
        )


def settings_of(context: ServiceContext, model: ModelFolder) -> dict[str, Any]:
    """The trainer's configuration file; the payload reads it strictly."""
    config, dialect = context.config, context.dialect
    return {
        "model_dir": model.serve,
        "warm_cache": model.warm_cache,
        "device": context.manifest.platform,
        "steps": config.steps,
        "seed": config.grpo.seed,
        "bucket_bytes": config.bucket_bytes,
        "grpo": config.grpo.model_dump(),
        "deadlines": config.deadlines.model_dump(include={"request_s", "rendezvous_s", "refit_s", "step_s"}),
        "refit": context.refit.kind,
        "backend": context.manifest.refit_backend,
        "transfer": dialect.transfer,
        "packing": config.packing.model_dump(),
        "rendezvous": config.rendezvous,
        "engine_label": dialect.weight_routes,
        "checkpoints": str(config.tmp_dir / "checkpoints"),
        "adapter": str(config.tmp_dir / "adapter") if config.lora else None,
        "precision": config.precision,
        "probe_new_tokens": config.probe_new_tokens,
        "sabotage": for_trainer(config.sabotage),
    }
