"""Follows the trainer: the payload's process, over its channel.

The order of events is a contract (`ready`, plan, `transfer.initialised`, then per version: `step` (not for version 0),
`refit`, `weights`, `probe`, our observation, `continue`; at last `perturbation` three times, each with an observation
and `continue`, which says how the next one is to pause the engines). Anything else ends the run: a trainer that is not
understood is not trusted. No verdict is read from the trainer's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from harness.channel import Event, TrainerChannel, as_error
from harness.clock import Clock
from harness.config import Deadlines
from harness.errors import TrainingError
from harness.events import PauseMode, Stage
from harness.vigil import Vigil

BACKSTOP_RATIO = 1.25
BACKSTOP_S = 3.0
"""How much longer than the configured limit the trainer is waited for, as a ratio and as a minimum in seconds.

The trainer keeps the same limits itself, and only it can tell in which phase a refit hung and which engines it left
paused. Were both sides to give up at the same moment, that account would be lost to a bare "not in time".
"""


@dataclass(frozen=True)
class Plan:
    """Where the stack is: what the trainer needs to reach frontend, engines and the rendezvous."""

    frontend_url: str
    served_model_name: str
    engines: list[dict[str, Any]]
    world_size: int
    master_address: str
    master_port: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    header_sources: Mapping[str, str] = field(default_factory=dict)
    slices: Sequence[Mapping[str, object]] = ()

    def command(self) -> Event:
        """Sent over a pipe that only the trainer reads: a file or an argument would show the headers to others."""
        return {"command": "plan", **self.__dict__}


@dataclass
class Follower:
    """Drives one training run over a channel.

    `watch` raises when any process of the run has died; `emit` records each event; `observe(version)` asks the stack
    itself while the trainer waits, and `observe_stage` after each refit of the perturbation. Around each of these,
    `before_stage` readies the stack and says how its engines are to be paused, and `after_stage` follows at once.
    `observe_adapter` is there where the trainer was asked for an adapter.
    """

    channel: TrainerChannel
    clock: Clock
    deadlines: Deadlines
    log: Path
    watch: Callable[[], None]
    emit: Callable[[Event], None]
    observe: Callable[[int], object]
    observe_stage: Callable[[Stage], None]
    before_stage: Callable[[Stage], PauseMode]
    after_stage: Callable[[Stage], None]
    observe_adapter: Callable[[Event], None] | None = None

    def await_ready(self) -> Event:
        return self._expect("trainer.ready", self.deadlines.trainer_ready_s)

    def train(self, plan: Plan, steps: int) -> None:
        """Version 0 is transferred first; then `steps` optimizer steps, each with its refit.

        A step is bounded twice by the trainer: its rollouts, and then its computation.
        """
        self._send(plan.command())
        self._expect("transfer.initialised", self.deadlines.rendezvous_s)
        for version in range(steps + 1):
            if version:
                self._expect("step", 2 * self.deadlines.step_s, field="step", value=version)
            self._expect("refit", self.deadlines.refit_s, field="version", value=version)
            self._expect("weights", self.deadlines.step_s, field="version", value=version)
            self._expect("probe", self.deadlines.step_s, field="version", value=version)
            self.observe(version)
            told = {"command": "continue", "version": version}
            if version < steps:
                self._send(told)
        self._rehearse(told)
        if self.observe_adapter is not None:
            self.observe_adapter(self._expect("adapter", self.deadlines.step_s))
            self._send({"command": "continue", "adapter": True})
        self._expect("trainer.done", self.deadlines.request_s)

    def _rehearse(self, told: Event) -> None:
        """The refits after the last step: to the same weights, to changed ones, and back. `told` sets them off."""
        for stage in get_args(Stage):
            self._send({**told, "pause": self.before_stage(stage)})
            self._expect("perturbation", self.deadlines.refit_s, field="stage", value=stage)
            self.after_stage(stage)
            self.observe_stage(stage)
            told = {"command": "continue", "stage": stage}
        self._send(told)

    def _send(self, command: Event) -> None:
        """Its name alone is told of a command that is not taken: a plan carries an API key."""
        name, seconds = command["command"], self.deadlines.request_s
        self.channel.put(command)
        try:
            if Vigil(self.clock, self.watch).until(self.channel.sent, seconds):
                return
        except BrokenPipeError:
            raise TrainingError(
                "the trainer closed its command pipe",
                expected=f"it accepts the command {name!r}",
                found="the reading end is closed",
                log=self.log,
            ) from None
        raise TrainingError(
            "the trainer does not read its commands",
            expected=f"it takes the command {name!r} within {seconds:g} s",
            found="the pipe is full",
            hint="see the trainer's log; it may be stopped",
            log=self.log,
        )

    def _expect(self, kind: str, seconds: float, *, field: str | None = None, value: object = None) -> Event:
        event = self._next(kind, max(seconds * BACKSTOP_RATIO, seconds + BACKSTOP_S))
        if event["kind"] == "trainer.error":
            self.watch()
            raise as_error(event.get("error"), self.log)
        wanted = kind if field is None else f"{kind} with {field} {value}"
        if event["kind"] != kind or (field is not None and event.get(field) != value):
            found = event["kind"] if field is None else f"{event['kind']} with {field} {event.get(field)}"
            raise TrainingError("the trainer's events are out of order", expected=wanted, found=found, log=self.log)
        return event

    def _next(self, kind: str, seconds: float) -> Event:
        if not Vigil(self.clock, self.watch).until(self._has_heard, seconds):
            raise TrainingError(
                f"the trainer did not report {kind} in time",
                expected=f"event {kind} within {seconds:g} s",
                found="no event, nor an account of its own",
                hint="see the trainer's log; --step-timeout and --refit-timeout raise the limits",
                log=self.log,
            )
        event = self.channel.receive()
        if event is None:
            self.watch()
            raise TrainingError(
                "the trainer ended before its work was done",
                expected=f"event {kind}",
                found="end of its event stream",
                log=self.log,
            )
        return event

    def _has_heard(self) -> bool:
        self.channel.hear(self.emit)
        return self.channel.waiting
