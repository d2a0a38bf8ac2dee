"""How a run follows its trainer to the end: its own account first, its exit status last, the topology at each turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DiscoveryError, RefitError, ServiceDiedError, TrainingError
from harness.events import BaseEvent, Observed
from harness.models import ModelChoice
from harness.request import Request
from harness.run import SmokeRun
from harness.services.context import TRAINER
from harness.services.spec import ServiceSpec
from harness.session import Session, opened
from harness.stack import Stack
from tests.harness import fakes

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
def run(session: Session) -> Iterator[SmokeRun]:
    made = SmokeRun(session)
    yield made
    made.channel.close()
    if made.stack is not None:
        made.stack.stop(urgent=lambda: True)


def with_trainer(run: SmokeRun, code: str, root: Path) -> Stack:
    """A stack of fakes that has not been started, and beside it a trainer that runs `code`."""
    session = run.session
    fakes.make_environment(root / ".venv-cpu")
    context = fakes.context(root, ports=session.config.ports)
    stack = run.stack = Stack(context, clock=session.clock, emit=session.emit, meanwhile=run._hear_trainer)
    events_fd, commands_fd = run.channel.child_fds
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
    run.channel.child_started()
    return stack


class TestTheTrainersEnd:
    def test_status_0_is_the_end_that_is_asked_for(self, run: SmokeRun, tmp_path: Path) -> None:
        stack = with_trainer(run, "pass", tmp_path)
        stack.may_end(TRAINER)
        run._await_trainers_end(stack)

    def test_any_other_status_is_a_failed_training(self, run: SmokeRun, tmp_path: Path) -> None:
        stack = with_trainer(run, "raise SystemExit(3)", tmp_path)
        stack.may_end(TRAINER)
        with pytest.raises(TrainingError, match="and then failed") as caught:
            run._await_trainers_end(stack)
        assert caught.value.found == "ended with exit status 3"

    def test_a_service_that_ends_meanwhile_ends_the_wait(
        self, run: SmokeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stack = with_trainer(run, HANGS, tmp_path)

        def dead() -> None:
            raise ServiceDiedError("engine-0 ended")

        monkeypatch.setattr(stack, "watch", dead)
        with pytest.raises(ServiceDiedError):
            run._await_trainers_end(stack)

    def test_a_trainer_that_stays_is_named(self, run: SmokeRun, tmp_path: Path) -> None:
        stack = with_trainer(run, HANGS, tmp_path)
        deadlines = run.session.config.deadlines.model_copy(update={"request_s": 0.2})
        run.session.config = run.session.config.model_copy(update={"deadlines": deadlines})
        with pytest.raises(TrainingError, match="does not end"):
            run._await_trainers_end(stack)


def test_a_trainer_that_fails_while_the_stack_starts_is_heard_with_its_own_words(run: SmokeRun, tmp_path: Path) -> None:
    stack = with_trainer(run, FAILS, tmp_path)
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
    def test_the_topology_is_compared_after_the_observation(self, run: SmokeRun) -> None:
        scene: Any = Scene()
        run._observe(scene, scene, [], 0)
        assert scene.asked == ["observation", "topology"]

    def test_a_changed_topology_ends_the_run_with_the_observation_recorded(self, run: SmokeRun) -> None:
        scene: Any = Scene(changed=True)
        with pytest.raises(DiscoveryError):
            run._observe(scene, scene, [], 0)
        assert run.session.events.events[-1]["kind"] == "observed"
