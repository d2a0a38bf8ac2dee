"""The trainer process: warm-up, then transfer 0, then optimizer steps with a refit after each.

`python -m smokestack_payload.trainer --config FILE --events-fd N --commands-fd M`. Speaks JSON lines over the two
pipes and ends when they do; stdout and stderr are a log for people. Order of events: trainer.ready,
transfer.initialised, then for each version: step (not for version 0), refit, weights, probe; then the perturbation:
repeated, perturbed and restored; the adapter, where one is asked for; trainer.done or trainer.error. It goes on with
the command `continue`, which says how the perturbation's refits are to pause the engines.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from smokestack_payload.errors import ModelError, PayloadError, ProtocolError
from smokestack_payload.events import CommandReader, EventWriter
from smokestack_payload.settings import Plan, TrainerSettings
from smokestack_payload.watchdog import time_limit

if TYPE_CHECKING:
    from smokestack_payload.policy import Policy
    from smokestack_payload.refit.session import RefitSession

DONE, FAILED = 0, 1
Command = Mapping[str, Any]


class Trainer:
    """One training run. Heavy imports happen here, not at the module's top: a bad configuration fails at once."""

    def __init__(self, settings: TrainerSettings, events: EventWriter, commands: CommandReader) -> None:
        self._settings = settings
        self._events = events
        self._commands = commands

    def run(self) -> None:
        """The whole protocol. Returns when all is done or the harness said `stop`; raises PayloadError."""
        policy = self._prepare()
        command = self._commands.expect("plan")
        if command is None:
            return
        plan = Plan.parse(command)
        session = self._connect(policy, plan)
        from smokestack_payload import sabotage

        asked = sabotage.sampling_plan(plan, self._settings)
        stepper = sabotage.stepper_of(self._settings)(
            policy, sabotage.spoiled_settings(self._settings), asked, self._limited
        )
        told: Command | None = None
        for version in range(self._settings.steps + 1):
            if version:
                self._events.emit("step", **stepper.take(version))
            self._transfer(session, policy, plan, version)
            told = self._commands.expect("continue")
            if told is None:
                return
        if told is None or not self._perturb_and_restore(session, policy, plan, told):
            return
        if not self._show_adapter(policy):
            return
        session.close()
        self._events.emit("trainer.done", steps=sabotage.told_steps(self._settings))

    def _prepare(self) -> Policy:
        """Everything that can be loaded before the stack is up, so that no engine waits for an import later."""
        from smokestack_payload.policy import load_policy
        from smokestack_payload.sabotage import require_known

        require_known(self._settings.sabotage)
        for module in ("held", "refit.backends", "refit.session", "step"):
            importlib.import_module(f"smokestack_payload.{module}")
        policy = load_policy(self._settings)
        self._events.emit("trainer.ready", **policy.described())
        return policy

    def _connect(self, policy: Policy, plan: Plan) -> RefitSession:
        """Form the transfer group with all engines' workers."""
        from smokestack_payload import sabotage
        from smokestack_payload.refit.backends import connector
        from smokestack_payload.refit.session import RefitSession

        limits = self._settings.deadlines
        plan = sabotage.spoiled_plan(plan, self._settings)
        fleet = sabotage.fleet_of(plan, self._settings)
        session = RefitSession(fleet, policy.source, policy.expected(self._settings), limits.refit_s)
        connect = sabotage.spoiled_connector(connector(self._settings, plan), self._settings)
        seconds = session.initialise(connect, limits.rendezvous_s)
        self._events.emit("transfer.initialised", world_size=plan.world_size, seconds=seconds)
        return session

    def _transfer(self, session: RefitSession, policy: Policy, plan: Plan, version: int) -> None:
        """Refit all engines to `version`, then say what this process computes with the same weights."""
        from smokestack_payload.held import digests
        from smokestack_payload.refit.backends import count_messages

        policy.publish()
        report = session.refit(version)
        self._events.emit(
            "refit",
            version=version,
            seconds=report.seconds,
            bytes=policy.bytes,
            buckets=count_messages(self._settings, policy.source.metadata()),
            engines=report.engines,
            workers=report.workers,
        )
        with self._limited(f"the digests of version {version}"):
            parameters = digests(policy.served, plan.slices)
        self._events.emit("weights", version=version, parameters=parameters)
        with self._limited(f"the probe of version {version}"):
            probes = policy.probes(self._settings.probe_new_tokens)
        self._events.emit("probe", version=version, probes=probes)

    def _perturb_and_restore(self, session: RefitSession, policy: Policy, plan: Plan, told: Command) -> bool:
        """Refit to the last version under another label, to visibly changed weights, and back.

        False when the harness said `stop`.
        """
        from smokestack_payload.held import perturbed

        last = self._settings.steps
        rehearse = partial(self._rehearse, session, policy, plan)
        then = rehearse("repeated", f"{last}-repeated", told=told)
        if then is None:
            return False
        with perturbed(policy.served, self._settings.seed):
            then = rehearse("perturbed", f"{last}-perturbed", told=then)
        return then is not None and rehearse("restored", str(last), told=then) is not None

    def _rehearse(
        self, session: RefitSession, policy: Policy, plan: Plan, stage: str, label: str, *, told: Command
    ) -> Command | None:
        """One refit beside the training: no version of the policy, but weights and a label like any other.

        The engines are paused as the command before it said. Returns the command after it, None for `stop`.
        """
        from smokestack_payload.held import digests
        from smokestack_payload.refit.admin import pause_mode

        report = session.refit(self._settings.steps, label=label, pause=pause_mode(told))
        with self._limited(f"the digests of the {stage} weights"):
            parameters = digests(policy.served, plan.slices)
        seconds = report.seconds["total"]
        self._events.emit("perturbation", stage=stage, label=label, seconds=seconds, parameters=parameters)
        return self._commands.expect("continue")

    def _show_adapter(self, policy: Policy) -> bool:
        """Write a LoRA adapter, and say what this process computes with it; false when the harness said `stop`."""
        folder = self._settings.adapter
        if folder is None:
            return True
        from smokestack_payload import adapter

        drawn = adapter.drawn(policy.served, self._settings.seed)
        adapter.write(drawn, folder)
        with adapter.applied(policy.served, drawn), self._limited("the probe with the adapter"):
            probes = policy.probes(self._settings.probe_new_tokens)
        self._events.emit("adapter", name=adapter.NAME, path=str(folder), layers=len(drawn.factors), probes=probes)
        return self._commands.expect("continue") is not None

    def _limited(self, what: str) -> AbstractContextManager[None]:
        return time_limit(what, self._settings.deadlines.step_s, self._expired)

    def _expired(self, what: str, seconds: float) -> None:
        fail(
            self._events,
            ModelError(f"{what} did not end in time", expected=f"done within {seconds:g} s", found="still computing"),
        )


def fail(events: EventWriter, error: PayloadError) -> NoReturn:
    """Report `error` and end the process at once: threads may be stuck in a collective and would never be joined."""
    events.emit("trainer.error", error=error.as_dict())
    leave(FAILED)


def leave(status: int) -> NoReturn:
    """End the process without the interpreter's own clean-up.

    Unloading torch and vLLM takes more than a second, in which nothing happens that anybody waits for: events are
    written when they are emitted, and the kernel closes what is open.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def read_settings(path: Path) -> TrainerSettings:
    """Raises ProtocolError, with the path, for anything but a configuration as `settings` describes it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProtocolError("the configuration cannot be read", found=str(error), where=str(path)) from error
    return TrainerSettings.parse(raw)


def main(argv: list[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m smokestack_payload.trainer", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--events-fd", type=int, required=True)
    parser.add_argument("--commands-fd", type=int, required=True)
    options = parser.parse_args(argv)
    events = EventWriter(options.events_fd)
    try:
        Trainer(read_settings(options.config), events, CommandReader(options.commands_fd)).run()
    except PayloadError as error:
        traceback.print_exc()
        fail(events, error)
    except BrokenPipeError:
        raise  # the harness is gone; there is nobody to tell
    except Exception as error:  # noqa: BLE001 - the process's last word: whatever it was, the harness must hear of it
        traceback.print_exc()
        fail(events, ModelError(f"the trainer failed: {type(error).__name__}: {error}", hint="see the trainer's log"))
    leave(DONE)


if __name__ == "__main__":
    main()
