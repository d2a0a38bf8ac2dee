"""How a run follows its trainer to the end: its own account first, its exit status last, the topology at each turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DiscoveryError, RefitError, ServiceDiedError, TrainingError
from harness.events import BaseEvent, Observed
from harness.models import ModelChoice
from harness.request import Request
from harness.services.context import TRAINER
from harness.services.spec import ServiceSpec
from harness.session import Session, opened
from harness.stack import Stack
from harness.trainer import Trainer
from tests.harness import fakes

Beside = Callable[[str], Stack]
HANGS = "import time; time.sleep(600)"
FAILS = """
import os, sys
os.write(int(sys.argv[1]), b'{"kind": "trainer.error", "error": {"kind": "refit", "what": "no such weights"}}\\n')
sys.exit(1)
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with opened(Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=tmp_path, quiet=True)) as made:
        yield made


@pytest.fixture
def trainer(session: Session) -> Iterator[Trainer]:
    made = Trainer(session)
    yield made
    made.channel.close()


@pytest.fixture
def with_trainer(trainer: Trainer, tmp_path: Path) -> Iterator[Beside]:
    """Makes a stack of fakes that has not been started, and beside it a trainer that runs the given code."""
    made: list[Stack] = []

    def make(code: str) -> Stack:
        made.append(_beside_a_stack(trainer, code, tmp_path))
        return made[-1]

    yield make
    for stack in made:
        stack.stop(urgent=lambda: True)


def _beside_a_stack(trainer: Trainer, code: str, root: Path) -> Stack:
    session = trainer.session
    fakes.make_environment(root / ".venv-cpu")
    context = fakes.context(root, ports=session.config.ports)
    stack = Stack(context, clock=session.clock, emit=session.emit, meanwhile=trainer.hear)
    events_fd, commands_fd = trainer.channel.child_fds
    stack.launch(
        ServiceSpec(
            name=TRAINER,
            argv=(sys.executable, "-I", "-S", "-c", code, str(events_fd), str(commands_fd)),
            env={},
            cwd=root,
            log=context.log(TRAINER),
            pass_fds=(events_fd, commands_fd),
        )
    )
    trainer.channel.child_started()
    return stack


class TestTheTrainersEnd:
    def test_status_0_is_the_end_that_is_asked_for(self, trainer: Trainer, with_trainer: Beside) -> None:
        stack = with_trainer("pass")
        stack.may_end(TRAINER)
        trainer.await_end(stack)

    def test_any_other_status_is_a_failed_training(self, trainer: Trainer, with_trainer: Beside) -> None:
        stack = with_trainer("raise SystemExit(3)")
        stack.may_end(TRAINER)
        with pytest.raises(TrainingError, match="and then failed") as caught:
            trainer.await_end(stack)
        assert caught.value.found == "ended with exit status 3"

    def test_a_service_that_ends_meanwhile_ends_the_wait(
        self, trainer: Trainer, with_trainer: Beside, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stack = with_trainer(HANGS)

        def dead() -> None:
            raise ServiceDiedError("engine-0 ended")

        monkeypatch.setattr(stack, "watch", dead)
        with pytest.raises(ServiceDiedError):
            trainer.await_end(stack)

    def test_a_trainer_that_stays_is_named(self, trainer: Trainer, with_trainer: Beside) -> None:
        stack = with_trainer(HANGS)
        deadlines = trainer.session.config.deadlines.model_copy(update={"request_s": 0.2})
        trainer.session.config = trainer.session.config.model_copy(update={"deadlines": deadlines})
        with pytest.raises(TrainingError, match="does not end"):
            trainer.await_end(stack)


def test_a_trainer_that_fails_while_the_stack_starts_is_heard_with_its_own_words(
    with_trainer: Beside, tmp_path: Path
) -> None:
    stack = with_trainer(FAILS)
    (tmp_path / ".venv-cpu" / "bin" / "etcd").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(RefitError, match="no such weights") as caught:
        stack.start()
    assert caught.value.exit_code == 40


@dataclass
class Scene:
    """A stack and an observer that note who was asked when."""

    asked: list[str] = field(default_factory=list)
    changed: bool = False

    def note_listening(self) -> None:
        """Sockets are looked at beside the rest."""

    def require_same_topology(self) -> None:
        self.asked.append("topology")
        if self.changed:
            raise DiscoveryError("the topology changed under the run")

    def observe(self, _prompts: Any, version: int) -> BaseEvent:
        self.asked.append("observation")
        return Observed(version=version, engines=())


class TestBeforeItMayContinue:
    def test_the_topology_is_compared_after_the_observation(self, trainer: Trainer) -> None:
        scene: Any = Scene()
        trainer.observe(scene, scene, [], 0)
        assert scene.asked == ["observation", "topology"]

    def test_a_changed_topology_ends_the_run_with_the_observation_recorded(self, trainer: Trainer) -> None:
        scene: Any = Scene(changed=True)
        with pytest.raises(DiscoveryError):
            trainer.observe(scene, scene, [], 0)
        assert trainer.session.events.events[-1]["kind"] == "observed"


class TestAFailedRefit:
    @pytest.mark.parametrize(("paused", "said"), [(True, "engine-0 is paused"), (False, "engine-0 is not paused")])
    def test_the_engines_are_asked_themselves_whether_they_are_paused(
        self, trainer: Trainer, with_trainer: Beside, paused: bool, said: str
    ) -> None:
        stack = with_trainer(HANGS)
        stack.start()
        if paused:
            (stack.context.config.tmp_dir / "paused").touch()
        trainer._follower = Refusing()  # type: ignore[assignment]
        with pytest.raises(RefitError) as caught:
            trainer.train(stack)
        assert caught.value.found == f"status 500; asked afterwards: {said}"


class Refusing:
    """Follows a trainer whose refit an engine refuses."""

    def train(self, *_: object) -> None:
        raise RefitError("the refit to version 1 failed", found="status 500")
