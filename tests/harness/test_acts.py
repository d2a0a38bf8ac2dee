"""Faults that the harness makes: each does one thing wrong and ends what it started; a run without one has none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from harness import run
from harness.bringup import new_stack
from harness.clock import SteadyClock
from harness.config import Deadlines
from harness.errors import DoctorError, InstallError, ServiceDiedError
from harness.events import Destroyed, EngineObservation
from harness.evidence.exposure import exposed
from harness.manifest import Manifest, installed_packages
from harness.models import ModelChoice
from harness.proctable import read_row
from harness.request import Request
from harness.run import SmokeRun, run_of, run_once
from harness.sabotage import SABOTAGES, acts, environments
from harness.sabotage.registry import HARNESS_SABOTAGES
from harness.session import Session, opened
from harness.stack import Stack
from harness.standing import STATE_FILE, Owner
from harness.trainer import Trainer
from tests.harness import fakes
from tests.harness.bench import CLEAN, Bench, leftovers

PROMPTS = [[1, 2, 3]]


def asked(tmp_path: Path, sabotage: str | None) -> Request:
    return Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=tmp_path, quiet=True, sabotage=sabotage)


def has_ended(pid: int) -> bool:
    row = read_row(pid)
    return row is None or row.ended


@contextmanager
def trainer(bench: Bench, kind: type[Trainer]) -> Iterator[Trainer]:
    """One that has the bench's run for its own."""
    signals = SimpleNamespace(urgent=SimpleNamespace(is_set=lambda: False))
    session: Any = SimpleNamespace(config=bench.context.config, clock=SteadyClock(), signals=signals)
    made = kind(session)
    yield made
    made.channel.close()


def test_each_of_the_registry_is_made() -> None:
    assert set(acts.ACTS) == set(HARNESS_SABOTAGES)


@pytest.mark.parametrize("name", [None, *(one.name for one in SABOTAGES if one.where == "trainer")])
def test_a_run_without_one_is_the_real_one(name: str | None, tmp_path: Path) -> None:
    with opened(asked(tmp_path, name)) as session:
        made = run_of(session)
        made.trainer.close()
    assert (type(made), type(made.trainer)) == (SmokeRun, Trainer)


@pytest.mark.parametrize("name", HARNESS_SABOTAGES)
def test_a_run_with_one_is_another(name: str, tmp_path: Path) -> None:
    with opened(asked(tmp_path, name)) as session:
        made = run_of(session)
        made.trainer.close()
    assert (type(made), type(made.trainer)) != (SmokeRun, Trainer)


class TestWrongPinInstalled:
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Path:
        site = tmp_path / "sound" / "lib" / "python3.11" / "site-packages"
        for name, version in (("smokestack_payload", "0.1.0"), ("other", "2.0")):
            info = site / f"{name}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (info / "entry_points.txt").write_text("[a]\n")
            (site / f"{name}.py").write_text(f"NAME = {name!r}\n")
        (tmp_path / "sound" / "bin").mkdir()
        (tmp_path / "sound" / "bin" / "python").symlink_to(sys.executable)
        return tmp_path / "sound"

    def test_one_package_is_in_another_version_and_the_sound_environment_stays(
        self, environment: Path, tmp_path: Path
    ) -> None:
        before = sorted((path, path.read_bytes()) for path in environment.rglob("*/*.*") if path.is_file())
        wrong = environments.with_wrong_package(environment, tmp_path / "wrong")
        assert installed_packages(wrong) == {"smokestack-payload": environments.WRONG_VERSION, "other": "2.0"}
        assert installed_packages(environment) == {"smokestack-payload": "0.1.0", "other": "2.0"}
        assert sorted((path, path.read_bytes()) for path in environment.rglob("*/*.*") if path.is_file()) == before

    def test_all_else_is_there(self, environment: Path, tmp_path: Path) -> None:
        wrong = environments.with_wrong_package(environment, tmp_path / "wrong")
        assert (wrong / "bin" / "python").samefile(environment / "bin" / "python")
        site = wrong / "lib" / "python3.11" / "site-packages"
        assert (site / "other.py").read_text() == "NAME = 'other'\n"
        [info] = site.glob("smokestack_payload-*.dist-info")
        assert (info / "entry_points.txt").read_text() == "[a]\n"

    def test_nothing_to_make_wrong_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "empty" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        with pytest.raises(DoctorError, match="cannot make an environment"):
            environments.with_wrong_package(tmp_path / "empty", tmp_path / "wrong")

    def test_the_run_reads_and_uses_the_wrong_one(
        self, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order: list[str] = []

        def read(session: Session) -> NoReturn:
            order.append(str(installed_packages(session.config.environment)["smokestack-payload"]))
            raise InstallError("far enough")

        monkeypatch.setattr(acts, "provide", lambda _session: order.append("provided"))
        monkeypatch.setattr(acts, "read_installed", read)
        environment.rename(tmp_path / ".venv-cpu")
        run_once(asked(tmp_path, "wrong-pin-installed"))
        assert order == ["provided", environments.WRONG_VERSION]
        config = json.loads((tmp_path / "runs" / "latest" / "config.json").read_text())
        assert config["environment"] != str(tmp_path / ".venv-cpu")
        assert not Path(config["environment"]).exists(), "it ends with the scratch folder"


class TestLeakedProcess:
    def test_it_outlives_the_teardown_is_named_and_ends_with_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def begin(one: SmokeRun) -> NoReturn:
            one.stack = new_stack(one.session, Manifest.model_validate(fakes.manifest_fields()))
            one.stack.describe(Owner.this_process()).write()
            raise InstallError("no space")

        monkeypatch.setattr(SmokeRun, "_run", begin)
        outcome = run_once(asked(tmp_path, "leaked-process"))
        [survivor] = outcome.verdict.survivors
        assert survivor.service == acts.LEAKED
        assert has_ended(survivor.pid)
        [check] = outcome.verdict.failed()
        assert check.id == "teardown.clean"
        assert f"pid {survivor.pid} (leaked) is alive" in check.found
        assert not (outcome.run_dir / STATE_FILE).exists(), "no stack is up"

    def test_a_stack_that_may_be_left_is_not_forgotten(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def begin(one: SmokeRun) -> None:
            one.stack = new_stack(one.session, Manifest.model_validate(fakes.manifest_fields()))
            one.stack.describe(Owner.this_process()).write()

        def stop(*_all: object, **_options: object) -> NoReturn:
            raise ZeroDivisionError

        monkeypatch.setattr(SmokeRun, "_run", begin)
        monkeypatch.setattr(Stack, "stop", stop)
        outcome = run_once(asked(tmp_path, "leaked-process"))
        assert (outcome.run_dir / STATE_FILE).exists()
        assert outcome.failure is not None

    def test_it_costs_no_teardown_when_it_cannot_be_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run, "install", lambda _session: (_ for _ in ()).throw(InstallError("no space")))
        monkeypatch.setattr(acts.sys, "executable", str(tmp_path / "nothing"))
        outcome = run_once(asked(tmp_path, "leaked-process"))
        assert outcome.verdict.survivors == ()
        assert outcome.verdict.failed() == [], "so that the selftest says that it was not caught"


class Engines:
    """An observer whose engines are only looked at."""

    def __init__(self) -> None:
        self.looked: list[object] = []

    def look(self, prompts: object, what: str) -> tuple[EngineObservation, ...]:
        self.looked.append(prompts)
        return ()

    def destroy(self, prompts: object) -> NoReturn:
        raise AssertionError("the weights are to be left as they are")


def test_what_is_not_destroyed_is_looked_at_all_the_same(bench: Bench) -> None:
    engines: Any = Engines()
    with trainer(bench, acts._NotDestroyed) as made:
        assert made.destroy(engines, PROMPTS) == Destroyed(engines=())
    assert engines.looked == [PROMPTS]


def test_an_exposed_listener_is_seen_from_start_to_end_and_is_no_replaced_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def train(_self: Trainer, stack: Any) -> None:
        told.extend((stack.listening("start"), stack.identities("start"), stack.identities("end")))

    monkeypatch.setattr(Trainer, "train", train)
    bench.stack.start()
    with trainer(bench, acts._ExposedListener) as made:
        made.train(bench.stack)
    listening, start, end = told
    [text] = exposed(listening, "127.0.0.1")
    assert text.startswith("exposed (pid ")
    assert start.processes == end.processes
    assert {one.service for one in start.processes} > {"exposed", "engine-0"}
    assert leftovers(bench.stack.stop()) == CLEAN


def test_an_engine_is_replaced_on_its_ports_and_its_successor_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "observe", lambda _self, stack, *_rest: stack.watch())
    bench.stack.start()
    core, observer = bench.core(), Engines()
    asked_for: Any = observer
    with trainer(bench, acts._EngineRestarted) as made:
        made.observe(bench.stack, asked_for, PROMPTS, acts.STRIKES_AT - 1)
        with pytest.raises(ServiceDiedError, match="engine-0 was replaced") as died:
            made.observe(bench.stack, asked_for, PROMPTS, acts.STRIKES_AT)
    successor = bench.core()
    assert successor != core
    assert "SIGKILL" in str(died.value)
    assert has_ended(successor)
    assert leftovers(bench.stack.stop()) == CLEAN


def test_discovery_lists_another_instance_and_is_then_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def replace(url: str) -> None:
        order.append(url)
        bench.tell("replaced-worker")

    def observe(_self: Trainer, stack: Stack, *_rest: object) -> None:
        order.append(str(stack.current_topology() == stack.topology))

    monkeypatch.setattr(acts.records, "replace_instance", replace)
    monkeypatch.setattr(Trainer, "observe", observe)
    bench.stack.start()
    nobody: Any = None
    with trainer(bench, acts._ReplacedTopology) as made:
        for version in range(acts.STRIKES_AT + 1):
            made.observe(bench.stack, nobody, PROMPTS, version)
    assert order == ["True", bench.context.url("etcd"), "False"]


def test_the_frontend_has_no_model_while_it_is_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    workers = bench.context.config.tmp_dir / "workers"

    @contextmanager
    def without_model(url: str) -> Iterator[None]:
        workers.rename(workers.with_name("away"))
        yield
        workers.with_name("away").rename(workers)
        order.append(url)

    monkeypatch.setattr(acts.records, "without_model", without_model)
    monkeypatch.setattr(Trainer, "generate_after", lambda *_all: order.append("generated"))
    bench.stack.start()
    with trainer(bench, acts._UnpublishedModel) as made:
        made.generate_after(bench.stack)
    assert order == ["generated", bench.context.url("etcd")]


def test_a_fault_that_does_not_come_about_ends_the_run(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(deadlines=Deadlines(engine_s=10, discovery_s=10, request_s=1, stop_grace_s=5))
    monkeypatch.setattr(acts.records, "replace_instance", lambda _url: None)
    bench.stack.start()
    nobody: Any = None
    with trainer(bench, acts._ReplacedTopology) as made, pytest.raises(DoctorError, match="had no effect"):
        made.observe(bench.stack, nobody, PROMPTS, acts.STRIKES_AT)
