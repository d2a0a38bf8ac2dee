"""The trainer is followed strictly: events in order, bounded waits, its own errors reported as ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.channel import TrainerChannel
from harness.config import Deadlines
from harness.errors import RefitError, ServiceDiedError, TrainingError
from harness.events import PAUSES, PauseMode, Stage
from harness.training import Follower, Plan
from tests.harness.waiting import until

STAGES: tuple[Stage, ...] = get_args(Stage)
PLAN = Plan(
    frontend_url="http://127.0.0.1:1",
    served_model_name="tiny",
    engines=[{"admin_url": "http://127.0.0.1:2", "world_size": 1, "rank_offset": 1}],
    world_size=2,
    master_address="127.0.0.1",
    master_port=3,
)


@dataclass
class SteppingClock:
    """Each sleep moves the clock; no real time passes unless the reader thread needs it.

    `at` holds what happens when the clock has come to a time.
    """

    now: float = 0.0
    at: dict[float, Callable[[], None]] = field(default_factory=dict)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due in [time for time in self.at if time <= self.now]:
            self.at.pop(due)()
        os.sched_yield()


@dataclass
class Scripted:
    """A trainer whose events are written into the pipe before it is followed."""

    channel: TrainerChannel = field(default_factory=TrainerChannel)
    emitted: list[str] = field(default_factory=list)
    observed: list[int | str] = field(default_factory=list)
    crossed: list[str] = field(default_factory=list)
    dead: bool = False
    clock: SteppingClock = field(default_factory=SteppingClock)

    def __post_init__(self) -> None:
        self.events_fd, self.commands_fd = (os.dup(fd) for fd in self.channel.child_fds)
        self.channel.child_started()

    def say(self, *events: dict[str, Any]) -> None:
        for event in events:
            os.write(self.events_fd, json.dumps(event).encode() + b"\n")

    def hear(self, count: int) -> None:
        """Until so many events were heard in all: the reader thread knows nothing of the stepping clock."""

        def heard() -> bool:
            self.channel.hear(lambda event: self.emitted.append(event["kind"]))
            return len(self.emitted) >= count

        until(f"{count} events were heard", heard)

    def hear_out(self) -> None:
        """Until its stream has ended."""

        def ended() -> bool:
            self.channel.hear(lambda event: self.emitted.append(event["kind"]))
            return self.channel.ended

        until("the trainer's stream has ended", ended)

    def say_and_hear(self, event: dict[str, Any]) -> None:
        self.say(event)
        self.hear(len(self.emitted) + 1)

    def leave(self) -> None:
        os.close(self.events_fd)
        self.events_fd = -1

    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in os.read(self.commands_fd, 1 << 16).splitlines()]

    def follower(self, **deadlines: float) -> Follower:
        return Follower(
            channel=self.channel,
            clock=self.clock,
            deadlines=Deadlines(**({"step_s": 1e6, "refit_s": 1e6, "rendezvous_s": 1e6, "request_s": 1e6} | deadlines)),
            log=Path("trainer.log"),
            watch=self.watch,
            emit=lambda event: self.emitted.append(event["kind"]),
            observe=self.observed.append,
            observe_stage=self.observed.append,
            before_stage=self.ready_for,
            after_stage=self.crossed.append,
        )

    def ready_for(self, stage: Stage) -> PauseMode:
        self.crossed.append(f"before {stage}")
        return PAUSES[stage]

    def watch(self) -> None:
        if self.dead:
            raise ServiceDiedError("trainer died")

    def close(self) -> None:
        self.channel.close()
        os.close(self.commands_fd)
        if self.events_fd != -1:
            os.close(self.events_fd)


@pytest.fixture
def trainer() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.close()


def version_events(version: int) -> list[dict[str, Any]]:
    step = [{"kind": "step", "step": version}] if version else []
    return [*step, *({"kind": kind, "version": version} for kind in ("refit", "weights", "probe"))]


def perturbation(stage: str) -> dict[str, Any]:
    return {"kind": "perturbation", "stage": stage}


def test_every_version_is_observed_and_continued(trainer: Scripted) -> None:
    trainer.say({"kind": "transfer.initialised"}, *version_events(0), *version_events(1), *version_events(2))
    trainer.say(*map(perturbation, STAGES), {"kind": "trainer.done"})
    trainer.follower().train(PLAN, steps=2)
    assert trainer.observed == [0, 1, 2, *STAGES]
    commands = trainer.heard()
    assert [command["command"] for command in commands] == ["plan", *["continue"] * 6]
    assert [command.get("version", command.get("stage")) for command in commands[1:]] == trainer.observed


def test_what_sets_off_a_refit_of_the_perturbation_says_how_it_pauses(trainer: Scripted) -> None:
    trainer.say({"kind": "transfer.initialised"}, *version_events(0), *version_events(1))
    trainer.say(*map(perturbation, STAGES), {"kind": "trainer.done"})
    trainer.follower().train(PLAN, steps=1)
    assert [command.get("pause") for command in trainer.heard()] == [None, None, "abort", "wait", "keep", None]
    assert trainer.crossed == [turn for stage in STAGES for turn in (f"before {stage}", stage)]


def test_a_run_does_not_end_before_the_last_version_is_restored(trainer: Scripted) -> None:
    trainer.say({"kind": "transfer.initialised"}, *version_events(0), perturbation("repeated"))
    trainer.say(perturbation("restored"))
    with pytest.raises(TrainingError, match="out of order") as caught:
        trainer.follower().train(PLAN, steps=0)
    assert caught.value.expected == "perturbation with stage perturbed"


def test_a_skipped_version_ends_the_run(trainer: Scripted) -> None:
    trainer.say({"kind": "transfer.initialised"}, *version_events(0), *version_events(2))
    with pytest.raises(TrainingError, match="out of order") as caught:
        trainer.follower().train(PLAN, steps=2)
    assert caught.value.expected == "step with step 1"
    assert trainer.observed == [0]


def test_a_refit_error_keeps_the_servers_text_and_names_the_paused_engines(trainer: Scripted) -> None:
    error = {"kind": "refit", "what": "update_weights: 500", "found": "no parameter x", "poisoned": ["http://e"]}
    trainer.say({"kind": "transfer.initialised"}, {"kind": "trainer.error", "error": error})
    with pytest.raises(RefitError, match="left paused, not to be used again: http://e") as caught:
        trainer.follower().train(PLAN, steps=1)
    assert caught.value.found == "no parameter x"
    assert caught.value.exit_code == 40


def test_a_silent_trainer_is_given_up_at_the_deadline(trainer: Scripted) -> None:
    with pytest.raises(TrainingError, match=r"did not report transfer\.initialised in time"):
        trainer.follower(rendezvous_s=0.5).train(PLAN, steps=1)


LIMITS = {"request_s": 3.0, "rendezvous_s": 5.0, "refit_s": 2.0, "step_s": 4.0}
SAID_LATE_S = 1.2
"""After its limit, the trainer needs a moment (the last words of a collective) before it says which phase hung."""


@pytest.mark.parametrize(
    ("before", "limit_s"),
    [
        ([], LIMITS["rendezvous_s"]),
        ([{"kind": "transfer.initialised"}], LIMITS["refit_s"]),
        ([{"kind": "transfer.initialised"}, *version_events(0)], 2 * LIMITS["step_s"]),
    ],
    ids=["rendezvous", "refit", "step"],
)
def test_the_trainers_own_account_of_a_hang_arrives_before_the_harness_gives_up(
    trainer: Scripted, before: list[dict[str, Any]], limit_s: float
) -> None:
    error = {"kind": "refit", "what": "not in time", "found": "still in phase 'update'", "poisoned": ["http://e"]}

    trainer.say(*before)
    trainer.hear(len(before))
    trainer.clock.at[limit_s + SAID_LATE_S] = lambda: trainer.say_and_hear({"kind": "trainer.error", "error": error})
    with pytest.raises(RefitError, match="left paused, not to be used again: http://e") as caught:
        trainer.follower(**LIMITS).train(PLAN, steps=1)
    assert caught.value.found == "still in phase 'update'"


def test_a_failure_heard_while_nobody_waits_for_it_is_raised_as_what_it_is(trainer: Scripted) -> None:
    trainer.say({"kind": "trainer.error", "error": {"kind": "model", "what": "no such weights", "hint": "make them"}})
    trainer.leave()
    trainer.hear_out()
    with pytest.raises(TrainingError, match="no such weights") as caught:
        trainer.channel.raise_fault(Path("trainer.log"))
    assert caught.value.hint == "make them"
    assert trainer.emitted == ["trainer.error"]


def test_a_failure_that_only_met_the_end_of_a_process_is_told_as_that_end(trainer: Scripted) -> None:
    trainer.say_and_hear({"kind": "trainer.error", "error": {"kind": "training", "what": "connection refused"}})
    trainer.dead = True
    with pytest.raises(ServiceDiedError):
        trainer.follower().await_ready()


def test_a_trainer_that_said_nothing_wrong_has_no_fault(trainer: Scripted) -> None:
    trainer.say({"kind": "trainer.done"})
    trainer.leave()
    trainer.hear_out()
    trainer.channel.raise_fault(Path("trainer.log"))


def test_a_trainer_that_leaves_early_is_an_error(trainer: Scripted) -> None:
    trainer.say({"kind": "transfer.initialised"})
    trainer.leave()
    with pytest.raises(TrainingError, match="ended before its work was done"):
        trainer.follower().train(PLAN, steps=1)


def test_a_dead_service_is_noticed_while_waiting(trainer: Scripted) -> None:
    trainer.dead = True
    with pytest.raises(ServiceDiedError):
        trainer.follower().train(PLAN, steps=1)


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b'{"kind": 3}\n',
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        b'{"kind": "observed", "version": 0}\n',
        b'{"kind": "failure", "source": "harness"}\n',
    ],
    ids=["text", "list", "number", "bytes", "depth", "an observation", "a failure"],
)
def test_garbage_on_the_event_pipe_is_a_protocol_error(trainer: Scripted, line: bytes) -> None:
    os.write(trainer.events_fd, line)
    with pytest.raises(TrainingError, match="not an event"):
        trainer.follower(rendezvous_s=1e3).train(PLAN, steps=1)


def test_a_closed_command_pipe_is_named(trainer: Scripted) -> None:
    os.close(trainer.commands_fd)
    trainer.commands_fd = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(TrainingError, match="closed its command pipe"):
        trainer.follower().train(PLAN, steps=1)


BULKY = replace(PLAN, headers={"Authorization": "Bearer sk-" + "x" * (1 << 18)})
"""More than a pipe takes at once."""


def test_a_trainer_that_does_not_read_is_waited_for_within_the_limit(trainer: Scripted) -> None:
    with pytest.raises(TrainingError, match="does not read its commands") as caught:
        trainer.follower(request_s=7.0).train(BULKY, steps=1)
    assert caught.value.expected == "it takes the command 'plan' within 7 s"
    assert 7.0 <= trainer.clock.now < 8.0
    assert "sk-" not in str(caught.value)


def test_a_trainer_that_dies_instead_of_reading_is_named_at_once(trainer: Scripted) -> None:
    trainer.clock.at[2.0] = lambda: setattr(trainer, "dead", True)
    with pytest.raises(ServiceDiedError, match="trainer died"):
        trainer.follower(request_s=7.0).train(BULKY, steps=1)
    assert trainer.clock.now < 3.0


def test_a_command_that_the_pipe_takes_in_parts_arrives_whole(trainer: Scripted) -> None:
    arrived = bytearray()
    trainer.channel.put(BULKY.command())
    while not trainer.channel.sent():
        arrived += os.read(trainer.commands_fd, 1 << 16)
    while not arrived.endswith(b"\n"):
        arrived += os.read(trainer.commands_fd, 1 << 16)
    assert json.loads(arrived) == json.loads(json.dumps(BULKY.command()))


def test_an_adapter_is_waited_for_only_where_one_was_asked_for(trainer: Scripted) -> None:
    told = {"kind": "adapter", "name": "a", "path": "/nowhere"}
    ending = map(perturbation, STAGES)
    trainer.say({"kind": "transfer.initialised"}, *version_events(0), *ending, told, {"kind": "trainer.done"})
    seen: list[dict[str, Any]] = []
    replace(trainer.follower(), observe_adapter=seen.append).train(PLAN, 0)
    assert seen == [told]
    assert trainer.heard()[-1] == {"command": "continue", "adapter": True}


def test_an_adapter_that_nobody_asked_for_is_out_of_order(trainer: Scripted) -> None:
    ending = map(perturbation, STAGES)
    trainer.say({"kind": "transfer.initialised"}, *version_events(0), *ending, {"kind": "adapter"})
    with pytest.raises(TrainingError, match="out of order"):
        trainer.follower().train(PLAN, 0)
