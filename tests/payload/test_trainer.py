"""The trainer process over its two pipes, against a fake frontend and an engine with a real Gloo worker inside."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import STEPS, FakeEngine, configured
from smokestack_payload import model as models
from smokestack_payload.digests import digest, values_digest
from smokestack_payload.events import EventWriter
from smokestack_payload.rollout import ROUTE
from test_gloo import worker
from test_rollout import answer

MakeEngine = Callable[[], FakeEngine]
LIMIT_S = 120.0
"""No trainer lives longer, so that waiting for its next event ends."""


class Process:
    """A trainer process and the harness's ends of its pipes."""

    def __init__(self, config: Path) -> None:
        events_read, events_write = os.pipe()
        commands_read, commands_write = os.pipe()
        argv = [sys.executable, "-m", "smokestack_payload.trainer", "--config", str(config)]
        argv += ["--events-fd", str(events_write), "--commands-fd", str(commands_read)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.popen = subprocess.Popen(
            argv, pass_fds=(events_write, commands_read), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        os.close(events_write)
        os.close(commands_read)
        self.events = os.fdopen(events_read, encoding="utf-8")
        self.commands = os.fdopen(commands_write, "w", encoding="utf-8")
        self._limit = threading.Timer(LIMIT_S, self.popen.kill)
        self._limit.start()

    def next(self) -> dict[str, Any]:
        line = self.events.readline()
        assert line, f"the trainer ended, or said nothing more within {LIMIT_S:g} s of its start"
        event: dict[str, Any] = json.loads(line)
        return event

    def send(self, **command: Any) -> None:
        self.commands.write(json.dumps(command) + "\n")
        self.commands.flush()

    def close(self) -> None:
        self._limit.cancel()
        self.popen.kill()
        self.popen.communicate()
        self.events.close()
        self.commands.close()


@pytest.fixture
def start() -> Iterator[Callable[[Path], Process]]:
    running: list[Process] = []

    def make(config: Path) -> Process:
        running.append(Process(config))
        return running[-1]

    yield make
    for process in running:
        process.close()


def configuration(folder: Path, model_dir: Path, **changes: Any) -> Path:
    path = folder / "trainer.json"
    path.write_text(json.dumps(configured(model_dir, **changes)), encoding="utf-8")
    return path


def live_engine(engine: FakeEngine) -> Any:
    """Give the fake engine a real worker; returns its model, which records what was loaded."""
    receiver = worker()

    def initialise(body: Any) -> tuple[int, Any]:
        receiver.init_transfer_engine(receiver.parse_init_info(body["init_info"]))
        return 200, {}

    def update(body: Any) -> tuple[int, Any]:
        receiver.update_weights(body["update_info"])
        return 200, {}

    engine.on("/init_weight_transfer_engine", initialise)
    engine.on("/update_weights", update)
    return receiver.model


def live_frontend(frontend: FakeEngine) -> None:
    """Every first sample of a group is right, every second one wrong, in the digits' notation."""
    lock, count = threading.Lock(), [0]

    def respond(body: Any) -> tuple[int, Any]:
        with lock:
            count[0] += 1
        left, right = body["token_ids"][1], body["token_ids"][3]
        total = (left - ZERO) + (right - ZERO)
        shown = str(total if body["sampling_params"]["seed"] % 2 else total + 1)
        return 200, answer([*(ZERO + int(digit) for digit in shown), 257], [-1.0] * (len(shown) + 1))

    frontend.on(ROUTE, respond)


ZERO = 15
"""The token of "0" in the byte-level vocabulary."""


def plan(frontend: FakeEngine, engine: FakeEngine, port: int) -> dict[str, Any]:
    return {
        "command": "plan",
        "frontend_url": frontend.url,
        "served_model_name": "tiny",
        "engines": [{"admin_url": engine.url + "/", "world_size": 1, "rank_offset": 1}],
        "world_size": 2,
        "master_address": "127.0.0.1",
        "master_port": port,
        "headers": {"x-key": "k"},
    }


def test_the_whole_protocol_in_order(
    tmp_path: Path, make_engine: MakeEngine, start: Callable[[Path], Process], free_port: int
) -> None:
    base, _ = models.make_tiny(tmp_path / "tiny")
    engine, frontend = make_engine(), make_engine()
    received = live_engine(engine)
    live_frontend(frontend)
    trainer = start(configuration(tmp_path, base, adapter=str(tmp_path / "adapter")))
    ready = trainer.next()
    assert ready["kind"] == "trainer.ready", ready
    assert ready["warmup"] is None
    assert ready["stop_token_ids"] == [257]
    assert len(ready["probe_prompts"]) == 4
    assert ready["tied"] == {"lm_head.weight": "model.embed_tokens.weight"}
    assert {"name": "model.norm.weight", "dtype": "float32", "shape": [128]} in ready["tensors"]
    trainer.send(**plan(frontend, engine, free_port))
    assert trainer.next()["world_size"] == 2
    probes = []
    for version in range(STEPS + 1):
        if version:
            step = trainer.next()
            assert (step["kind"], step["step"], step["version_sampled"]) == ("step", version, version - 1), step
            assert (step["rollouts"], step["errored"]) == (4, 0)
            assert all(sorted(group["rewards"]) == [0.0, 1.0] for group in step["rewards"]["groups"])
            assert step["grad_norm"] > 0
            assert [each["tokens"] for each in step["answers"]].count(0) == 0
            assert sum(each["tokens"] for each in step["answers"]) == step["tokens"]
            assert all(each["seconds"] > 0 for each in step["answers"])
            assert [fit["version"] for fit in step["fits"]] == list(range(max(version - 2, 0), version + 1))
            assert all(len(fit["max_abs"]) == 4 for fit in step["fits"])
        refit = trainer.next()
        assert (refit["kind"], refit["version"]) == ("refit", version), refit
        assert refit["bytes"] == ready["bytes"]
        assert refit["buckets"] > 1
        assert refit["engines"] == [engine.url]
        assert set(received.loaded) == {name for name, _ in models.load(base, "cpu")[0].named_parameters()}
        assert trainer.next()["parameters"] == [
            {"name": name, "sha256": digest(tensor), "values_sha256": values_digest(tensor)}
            for name, tensor in received.loaded.items()
        ]
        probe = trainer.next()
        assert (probe["kind"], probe["version"]) == ("probe", version)
        assert [one["prompt_ids"] for one in probe["probes"]] == ready["probe_prompts"]
        probes.append(probe["probes"])
        trainer.send(command="continue", version=version, **({"pause": "abort"} if version == STEPS else {}))
    last = {name: digest(tensor) for name, tensor in received.loaded.items()}
    for stage, then in (("repeated", "wait"), ("perturbed", "keep"), ("restored", "wait")):
        event = trainer.next()
        assert (event["kind"], event["stage"]) == ("perturbation", stage), event
        now = {name: digest(tensor) for name, tensor in received.loaded.items()}
        assert now == {one["name"]: one["sha256"] for one in event["parameters"]}, "told is what was sent"
        assert [name for name in last if now[name] == last[name]] == ([] if stage == "perturbed" else list(last))
        trainer.send(command="continue", stage=stage, pause=then)
    adapter = trainer.next()
    assert (adapter["kind"], adapter["path"]) == ("adapter", str(tmp_path / "adapter")), adapter
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    assert [one["prompt_ids"] for one in adapter["probes"]] == ready["probe_prompts"]
    moved = torch.tensor(adapter["probes"][0]["prompt_logprobs"]) - torch.tensor(probes[-1][0]["prompt_logprobs"])
    assert moved.abs().max() > 0.1, "an adapter that does not show proves nothing"
    trainer.send(command="continue", adapter=True)
    assert trainer.next()["kind"] == "trainer.done"
    assert trainer.popen.wait(timeout=20) == 0
    for one, two in pairwise(probes):
        changes = torch.tensor(one[0]["prompt_logprobs"]) - torch.tensor(two[0]["prompt_logprobs"])
        assert changes.abs().max() > 1e-3, "a step that does not move the policy proves nothing"
    labels = [body["weight_version"] for path, body in engine.calls if path == "/finish_weight_update"]
    assert labels == ["0", "1", "2", "2-repeated", "2-perturbed", "2"]
    pauses = [query for path, query in zip(engine.paths, engine.queries, strict=True) if path == "/pause"]
    assert pauses == [*["mode=wait"] * 3, "mode=abort", "mode=wait", "mode=keep"]


def test_a_failed_refit_is_reported_with_the_poisoned_engine_and_ends_the_process(
    tmp_path: Path, make_engine: MakeEngine, start: Callable[[Path], Process], free_port: int
) -> None:
    base, _ = models.make_tiny(tmp_path / "tiny")
    engine, frontend = make_engine(), make_engine()
    live_engine(engine)
    engine.fail("/update_weights", 500, "no parameter named model.wrong")
    trainer = start(configuration(tmp_path, base))
    assert trainer.next()["kind"] == "trainer.ready"
    trainer.send(**plan(frontend, engine, free_port))
    assert trainer.next()["kind"] == "transfer.initialised"
    event = trainer.next()
    assert event["kind"] == "trainer.error", event
    assert event["error"]["kind"] == "refit"
    assert "no parameter named model.wrong" in event["error"]["what"]
    assert event["error"]["poisoned"] == [engine.url]
    assert trainer.popen.wait(timeout=5) == 1, "the stuck broadcast must not keep the process alive"
    assert "/resume" not in engine.paths


def test_the_end_of_the_command_pipe_ends_the_process(tmp_path: Path, start: Callable[[Path], Process]) -> None:
    base, _ = models.make_tiny(tmp_path / "tiny")
    trainer = start(configuration(tmp_path, base))
    trainer.commands.close()
    assert trainer.popen.wait(timeout=20) == 1


def test_stop_ends_the_process_politely(tmp_path: Path, start: Callable[[Path], Process]) -> None:
    base, _ = models.make_tiny(tmp_path / "tiny")
    trainer = start(configuration(tmp_path, base))
    trainer.send(command="stop")
    assert trainer.next()["kind"] == "trainer.ready"
    assert trainer.popen.wait(timeout=20) == 0


def test_an_unknown_sabotage_is_refused_before_anything_is_loaded(
    tmp_path: Path, start: Callable[[Path], Process]
) -> None:
    trainer = start(configuration(tmp_path, tmp_path / "nowhere", sabotage="nonsense"))
    event = trainer.next()
    assert event["kind"] == "trainer.error"
    assert event["error"]["what"] == "no such sabotage"
    assert event["error"]["found"] == "nonsense"
    assert trainer.popen.wait(timeout=20) == 1


def test_an_unknown_field_of_the_configuration_is_an_error_that_names_it(
    tmp_path: Path, start: Callable[[Path], Process]
) -> None:
    trainer = start(configuration(tmp_path, tmp_path, stepz=3))
    event = trainer.next()
    assert event["kind"] == "trainer.error"
    assert event["error"]["kind"] == "protocol"
    assert "stepz" in event["error"]["found"]
    assert trainer.popen.wait(timeout=5) == 1


def test_a_number_that_is_none_is_an_event_in_plain_json() -> None:
    read, write = os.pipe()
    EventWriter(write).emit("step", loss=math.nan, seconds={"train": [1.5, math.inf, -math.inf]}, rewards=(0, None))
    os.close(write)
    with os.fdopen(read) as stream:
        event = json.loads(stream.readline(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert event["loss"] == "NaN"
    assert event["seconds"] == {"train": [1.5, "Infinity", "-Infinity"]}
    assert event["rewards"] == [0, None]


def test_the_process_leaves_without_the_interpreters_clean_up_but_says_everything(tmp_path: Path) -> None:
    code = (
        "import atexit, sys; from smokestack_payload.trainer import leave; "
        "atexit.register(lambda: print('cleaned up')); sys.stdout.write('last words'); leave(3)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    left = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (left.returncode, left.stdout) == (3, "last words")
