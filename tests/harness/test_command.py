"""The caller's own trainer: told where the stack is, followed to its end whatever that is, and asked for nothing."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from harness import command
from harness.calling import HttpBodyError, HttpStatusError
from harness.clock import InterruptibleClock
from harness.command import OwnTrainer
from harness.config import Deadlines
from harness.credentials import Credentials
from harness.environ import callers_environment
from harness.errors import Interrupted, TrainingError, UsageError
from harness.events import BaseEvent, CommandEnded, EngineLabels, EngineObservation, Generation, LabelsSeen, Surveyed
from harness.labels import LOOK_AGAIN_S, LabelWatch
from harness.program import Program
from harness.services import command as command_service
from harness.services.context import ServiceContext
from harness.session import Session
from tests.harness.bench import Bench
from tests.harness.waiting import until

TELL = "import json, os, sys; from pathlib import Path; Path('told').write_text(json.dumps(dict(os.environ)));"


@dataclass
class Engine:
    """Stands where the observer does: one engine whose label and state a test sets."""

    label: str = "default"
    paused: bool = False
    asked: int = 0
    open_update: bool = False

    def labels(self, _request_s: float) -> tuple[EngineLabels, ...]:
        self.asked += 1
        return (EngineLabels(admin_url="e", engine_label=self.label, sidecar_label=self.label, paused=self.paused),)

    def look(self, prompts: Any, _what: str) -> tuple[EngineObservation, ...]:
        assert all(0 <= token < 256 for prompt in prompts for token in prompt)
        label = self.label
        return (
            EngineObservation(
                admin_url="e", system_url="s", engine_label=label, sidecar_label=label, paused=self.paused, probes=()
            ),
        )

    def require_no_open_update(self) -> None:
        if self.open_update:
            raise TrainingError("an engine has a weight update open")

    def generate(self, when: Any) -> Generation:
        return Generation(when=when, status=200, text="7", completion_tokens=1, finish_reason="stop", seconds=0.1)


@dataclass
class Desk:
    """The part of a session that the command's side needs."""

    bench: Bench
    clock: InterruptibleClock = field(default_factory=InterruptibleClock)
    events: list[BaseEvent] = field(default_factory=list)
    urgent: threading.Event = field(default_factory=threading.Event)

    @property
    def config(self) -> Any:
        return self.bench.context.config

    @property
    def signals(self) -> Any:
        return self

    @property
    def run_dir(self) -> Any:
        return self

    def log(self, name: str) -> Path:
        return self.bench.context.log(name)

    def emit(self, event: BaseEvent) -> None:
        self.events.append(event)

    def note(self, text: str) -> None:
        assert text

    def of(self, kind: type[BaseEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    observed = Engine()
    monkeypatch.setattr(command, "observer_of", lambda _session, _stack: observed)
    monkeypatch.setattr(command, "labels_of", lambda observer, request_s: observer.labels(request_s))
    monkeypatch.setattr(command, "require_no_open_update", Engine.require_no_open_update)
    return observed


@pytest.fixture
def desk(make_bench: Callable[..., Bench]) -> Iterator[Desk]:
    deadlines = Deadlines(engine_s=10, discovery_s=10, request_s=5, stop_grace_s=5, command_s=20)
    bench = make_bench(deadlines=deadlines)
    bench.stack.start()
    made = Desk(bench)
    bench.stack._clock = made.clock  # an interrupt is one of the whole session
    yield made


def python(code: str, cwd: Path) -> Program:
    return Program(argv=(sys.executable, "-I", "-S", "-c", code), cwd=cwd)


def follow(desk: Desk, code: str, cwd: Path) -> None:
    trainer = OwnTrainer(cast(Session, desk), python(code, cwd))
    trainer.follow(desk.bench.stack)
    trainer.train(desk.bench.stack)


def test_it_is_told_where_everything_is_and_runs_where_the_caller_is(
    desk: Desk, engine: Engine, tmp_path: Path
) -> None:
    follow(desk, TELL, tmp_path)
    told = json.loads((tmp_path / "told").read_text())
    context, (worker,) = desk.bench.context, desk.bench.stack.topology.workers
    assert {name: value for name, value in told.items() if name in command_service.VARIABLES} == {
        "SMOKESTACK_FRONTEND_URL": context.url("frontend"),
        "SMOKESTACK_DISCOVERY_URL": context.url("discovery") + "/v1/rl/workers",
        "SMOKESTACK_ADMIN_URLS": worker.admin_url,
        "SMOKESTACK_SYSTEM_URLS": worker.system_url,
        "SMOKESTACK_ENGINE_WORLD_SIZES": "1",
        "SMOKESTACK_RANK_OFFSETS": "1",
        "SMOKESTACK_INFERENCE_WORLD_SIZE": "1",
        "SMOKESTACK_TRANSFER_WORLD_SIZE": "2",
        "SMOKESTACK_RENDEZVOUS_HOST": "127.0.0.1",
        "SMOKESTACK_RENDEZVOUS_PORT": str(context.config.ports["rendezvous"]),
        "SMOKESTACK_REFIT_PROTOCOL": "native",
        "SMOKESTACK_REFIT_BACKEND": "gloo",
        "SMOKESTACK_MODEL": "tiny",
        "SMOKESTACK_MODEL_DIR": str(context.config.model_dir),
        "SMOKESTACK_STEPS": "1",
        "SMOKESTACK_SEED": str(context.config.grpo.seed),
        "SMOKESTACK_RUN_DIR": str(context.config.run_dir),
    }


def test_the_stack_is_looked_at_before_it_and_after_it(desk: Desk, engine: Engine, tmp_path: Path) -> None:
    follow(desk, "print('a line of its own')", tmp_path)
    (ended,) = desk.of(CommandEnded)
    assert ended.returncode == 0
    order = [event for event in desk.events if isinstance(event, CommandEnded | Surveyed | Generation)]
    assert [getattr(event, "when", "ended") for event in order] == ["before", "ended", "after", "after"]
    assert desk.log("trainer").read_text() == "a line of its own\n"


def test_its_labels_are_followed_while_it_works(desk: Desk, engine: Engine, tmp_path: Path) -> None:
    waits = "import time; from pathlib import Path\nwhile not Path('go').exists(): time.sleep(0.01)"
    trainer = OwnTrainer(cast(Session, desk), python(waits, tmp_path))
    followed = threading.Thread(target=trainer.train, args=(desk.bench.stack,))
    followed.start()
    for label in ("0", "1"):
        engine.label = label
        until(f"label {label} was seen", lambda: desk.of(LabelsSeen)[-1:] and _last(desk) == engine.label)
    (tmp_path / "go").touch()
    followed.join(20)
    assert [event.engines[0].engine_label for event in desk.of(LabelsSeen)][-2:] == ["0", "1"]


def _last(desk: Desk) -> str | None:
    label: str | None = desk.of(LabelsSeen)[-1].engines[0].engine_label
    return label


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import sys; sys.exit(3)", "ended with exit status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
    ],
)
def test_a_command_that_fails_ends_the_run_with_what_it_left(
    code: str, found: str, desk: Desk, engine: Engine, tmp_path: Path
) -> None:
    engine.label, engine.paused = "2", True
    with pytest.raises(TrainingError, match="the command failed") as caught:
        follow(desk, code, tmp_path)
    assert caught.value.exit_code == 40
    assert found in str(caught.value.found)
    assert "e has version 2, and is paused" in str(caught.value.found)
    assert caught.value.log == desk.log("trainer")
    assert desk.of(CommandEnded)[0].returncode != 0
    assert not [event for event in desk.of(Surveyed) if event.when == "after"]


def test_an_engine_that_answers_nonsense_or_nothing_takes_nothing_from_the_commands_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def labels(_request_s: float) -> NoReturn:
        raise HttpBodyError("GET /weight_info answered something unexpected")

    nobody: Any = None
    session: Any = SimpleNamespace(clock=InterruptibleClock())
    odd, silent = SimpleNamespace(labels=labels), SimpleNamespace(labels=lambda _request_s: hanging.wait(20))
    hanging = threading.Event()
    monkeypatch.setattr(command, "LEFT_S", 0.05)
    monkeypatch.setattr(command, "labels_of", lambda observer, request_s: observer.labels(request_s))
    left = [OwnTrainer(session, nobody)._left(cast(Any, observer)) for observer in (silent, odd)]
    hanging.set()
    assert left == [
        "how it left the engines is not known: no labels within 0.05 s",
        "how it left the engines is not known: GET /weight_info answered something unexpected",
    ]


def test_an_interrupt_does_not_wait_for_what_a_failed_command_left(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = None
    session: Any = SimpleNamespace(clock=InterruptibleClock())
    hanging = threading.Event()

    def labels(request_s: float) -> None:
        assert 4 * request_s < command.LEFT_S, "an engine and its sidecar that hang leave time for the next"
        session.clock.interrupt.set()
        hanging.wait(20)

    monkeypatch.setattr(command, "labels_of", lambda observer, request_s: observer.labels(request_s))
    with pytest.raises(Interrupted):
        OwnTrainer(session, nobody)._left(cast(Any, SimpleNamespace(labels=labels)))
    hanging.set()


def test_a_command_that_does_not_end_is_ended_with_the_run(
    make_bench: Callable[..., Bench], engine: Engine, tmp_path: Path
) -> None:
    bench = make_bench(deadlines=Deadlines(command_s=0.3, stop_grace_s=5))
    bench.stack.start()
    with pytest.raises(TrainingError, match="did not end in time") as caught:
        follow(Desk(bench), "import time; time.sleep(60)", tmp_path)
    assert "--trainer-timeout" in str(caught.value.hint)
    process = bench.stack.processes["trainer"]
    assert process.alive()
    assert bench.stack.stop().survivors == ()
    assert not process.alive()


def test_an_update_that_it_left_open_is_found_before_anything_is_generated(
    desk: Desk, engine: Engine, tmp_path: Path
) -> None:
    engine.open_update = True
    with pytest.raises(TrainingError, match="weight update open"):
        follow(desk, "pass", tmp_path)
    assert desk.of(CommandEnded)
    assert not desk.of(Generation)


def test_an_engine_that_it_left_paused_is_not_waited_for(desk: Desk, engine: Engine, tmp_path: Path) -> None:
    engine.paused = True
    follow(desk, "pass", tmp_path)
    assert desk.of(Surveyed)[-1].engines[0].paused
    assert not desk.of(Generation)


def test_a_ctrl_c_reaches_it_as_one_and_it_has_time_for_its_end(desk: Desk, engine: Engine, tmp_path: Path) -> None:
    code = """
import signal, sys, time
from pathlib import Path
def end(*_): time.sleep(0.2); Path('ended').write_text('in order'); sys.exit(0)
signal.signal(signal.SIGINT, end)
Path('ready').touch()
while True: time.sleep(0.01)
"""

    def interrupt() -> None:
        until("the command runs", (tmp_path / "ready").exists)
        desk.clock.interrupt.set()

    threading.Thread(target=interrupt).start()
    with pytest.raises(Interrupted):
        follow(desk, code, tmp_path)
    assert (tmp_path / "ended").read_text() == "in order"
    assert desk.bench.stack.processes["trainer"].poll() == 0


def test_a_second_ctrl_c_does_not_wait_for_it(desk: Desk, engine: Engine, tmp_path: Path) -> None:
    code = f"import signal, time; signal.signal({int(signal.SIGINT)}, signal.SIG_IGN); time.sleep(60)"
    desk.urgent.set()
    desk.clock.interrupt.set()
    with pytest.raises(Interrupted):
        OwnTrainer(cast(Session, desk), python(code, tmp_path))._run_command(desk.bench.stack, cast(Any, engine))
    assert desk.bench.stack.processes["trainer"].alive()


def test_a_program_that_does_not_exist_is_noticed_before_anything_is_started(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench()
    missing = OwnTrainer(cast(Session, Desk(bench)), Program(argv=("bin/nothing",), cwd=tmp_path))
    with pytest.raises(UsageError, match="there is no program bin/nothing"):
        missing.launch(bench.stack, bench.context.manifest, cast(Any, None))
    assert bench.started() == []


class TestEnvironment:
    def test_it_is_the_callers_less_what_leads_to_another_stack(self) -> None:
        tools = "/src/smokestack/.nox/tool/bin:/src/smokestack/.tool/py3.11/bin"
        caller = {
            "PATH": f"{tools}:/src/smokestack/bin:/usr/bin",
            "HOME": "/home/somebody",
            "WANDB_API_KEY": "k",
            "DYN_NAMESPACE": "elsewhere",
            "SMOKESTACK_DIE_WITH_PARENT": "1",
            "VLLM_PLUGINS": "none",
            "HTTPS_PROXY": "http://proxy:1",
            "NO_PROXY": "example.org",
        }
        made = callers_environment(caller, project=Path("/src/smokestack"), own={"SMOKESTACK_MODEL": "tiny"})
        assert made == {
            "PATH": "/src/smokestack/bin:/usr/bin",
            "HOME": "/home/somebody",
            "WANDB_API_KEY": "k",
            "HTTPS_PROXY": "http://proxy:1",
            "NO_PROXY": "example.org,127.0.0.1,localhost,::1",
            "no_proxy": "127.0.0.1,localhost,::1",
            "PYTHONUNBUFFERED": "1",
            "SMOKESTACK_MODEL": "tiny",
        }

    def test_on_gpus_it_sees_the_trainers_alone(self, desk: Desk) -> None:
        context = desk.bench.context
        config = context.config.model_copy(update={"platform": "cuda", "gpus": ("0", "1")})
        manifest = context.manifest.model_copy(update={"platform": "cuda"})
        spec = command_service.spec(
            ServiceContext(config, manifest, {"CUDA_VISIBLE_DEVICES": "0,1"}),
            python("pass", Path("/")),
            desk.bench.stack.topology.workers,
        )
        assert spec.env["CUDA_VISIBLE_DEVICES"] == "1"

    def test_a_key_comes_with_the_name_of_its_variable(self, desk: Desk) -> None:
        context, workers = desk.bench.context, desk.bench.stack.topology.workers
        keyed = ServiceContext(
            context.config, context.manifest, {}, Credentials(api_key="secret-key", api_key_variable="VLLM_KEY")
        )
        told = command_service.variables(keyed, workers)
        assert (told["SMOKESTACK_API_KEY_VARIABLE"], told["VLLM_KEY"]) == ("VLLM_KEY", "secret-key")
        assert command_service.VARIABLES.keys() - command_service.variables(context, workers).keys() == {
            "SMOKESTACK_API_KEY_VARIABLE"
        }
        assert told.keys() - {"VLLM_KEY"} == command_service.VARIABLES.keys()


class TestLabelWatch:
    @dataclass
    class Clock:
        now: float = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            raise AssertionError("it never waits")

    def watch(self, ask: Callable[[], tuple[EngineLabels, ...]]) -> tuple[LabelWatch, Clock, list[BaseEvent]]:
        clock, events = self.Clock(), list[BaseEvent]()
        return LabelWatch(ask, clock=clock, emit=events.append), clock, events

    def settle(self, watch: LabelWatch) -> None:
        watch.look()
        until("the question was answered", lambda: watch._pending is None or watch._pending.done())
        watch.look()

    def test_only_what_changes_is_told(self) -> None:
        engine = Engine()
        watch, clock, events = self.watch(lambda: engine.labels(1.0))
        for label, paused in (("0", False), ("0", False), ("0", True), ("1", True), ("1", False)):
            engine.label, engine.paused = label, paused
            self.settle(watch)
            clock.now += LOOK_AGAIN_S
        assert len(events) == 4
        assert engine.asked == 5

    def test_no_answer_is_no_news(self) -> None:
        silent = EngineLabels(admin_url="e", engine_label=None, sidecar_label=None, paused=None)
        watch, _, events = self.watch(lambda: (silent,))
        self.settle(watch)
        assert events == []

    def test_a_question_that_hangs_holds_nobody_up_and_no_second_one_is_asked(self) -> None:
        answer, asked = threading.Event(), list[int]()

        def hang() -> tuple[EngineLabels, ...]:
            asked.append(1)
            answer.wait(20)
            return ()

        watch, clock, _ = self.watch(hang)
        for _ in range(5):
            watch.look()
            clock.now += LOOK_AGAIN_S
        answer.set()
        assert len(asked) == 1

    def test_what_the_question_raises_is_raised_to_the_run(self) -> None:
        def refuse() -> tuple[EngineLabels, ...]:
            raise HttpStatusError("no", status=None, found="nothing", where="e")

        watch, _, _ = self.watch(refuse)
        with pytest.raises(HttpStatusError):
            self.settle(watch)


def test_the_page_has_every_variable_with_its_meaning() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trainer.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `SMOKESTACK_")]
    assert rows == [f"| `{name}` | {meaning} |" for name, meaning in command_service.VARIABLES.items()]
