"""The exact argv and environment of every process of the stacks for GPUs; see `golden` for how the files are made."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.harness.golden import PORTS, RUNS, difference, file_of

OF_ANY_MACHINE = ("/tmp/<scratch>", "/home/somebody/")


def commands(name: str) -> dict[str, dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file_of(name).read_text())
    return {command["service"]: command for command in found}


@pytest.mark.parametrize("name", RUNS)
def test_a_dry_run_says_what_is_written_down(name: str) -> None:
    found = difference(name)
    assert not found, f"{found}\nif this is meant: .nox/tool/bin/python -m tests.harness.golden --write"


def test_the_files_are_of_no_machine() -> None:
    for name in RUNS:
        paths = re.findall(r'["=](/[^"]*)"', file_of(name).read_text())
        assert paths
        assert [path for path in paths if not path.startswith(OF_ANY_MACHINE)] == []


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (
            "engine-0",
            "bin/vllm-rs serve Qwen/Qwen3-0.6B --host 127.0.0.1 --port 8002 --grpc-port 50051 "
            "--python <project>/.venv-prime-rl/bin/python -- "
            "--worker-extension-cls smokestack_payload.refit.worker.RefitWorker",
        ),
        (
            "frontend",
            "bin/python -m dynamo.frontend --http-host 127.0.0.1 --http-port 8000 --namespace dynamo "
            "--discovery-backend etcd --request-plane tcp --event-plane zmq --router-min-initial-workers 1",
        ),
        (
            "sidecar-0",
            "bin/dynamo-vllm-sidecar --vllm-endpoint 127.0.0.1:50051 --admin-endpoint http://127.0.0.1:8002 "
            "--model-path Qwen/Qwen3-0.6B --namespace dynamo --rl-discovery-model-name Qwen/Qwen3-0.6B",
        ),
    ],
)
def test_the_researchers_stack_is_called_as_its_researchers_call_it(service: str, words: str) -> None:
    assert " ".join(commands("prime-rl")[service]["argv"]) == f"<project>/.venv-prime-rl/{words}"


@pytest.mark.parametrize(
    ("service", "variables"),
    [
        ("engine-0", {"CUDA_VISIBLE_DEVICES": "0", "VLLM_SERVER_DEV_MODE": "1"}),
        (
            "frontend",
            {"DYN_ENABLE_RL": "true", "DYN_RL_PORT": "8001", "DYN_VLLM_ENABLE_INFERENCE_V1_GENERATE": "true"},
        ),
        (
            "sidecar-0",
            {
                "DYN_NAMESPACE": "dynamo",
                "DYN_DISCOVERY_BACKEND": "etcd",
                "DYN_ENABLE_RL": "true",
                "VLLM_HTTP_ENDPOINT": "http://127.0.0.1:8002",
            },
        ),
        ("trainer", {"CUDA_VISIBLE_DEVICES": "1"}),
    ],
)
def test_the_researchers_stack_has_their_variables(service: str, variables: dict[str, str]) -> None:
    env = commands("prime-rl")[service]["env"]
    assert {name: env.get(name) for name in variables} == variables


def test_the_gpus_that_were_asked_for_are_the_ones_in_sight() -> None:
    seen = {name: command["env"]["CUDA_VISIBLE_DEVICES"] for name, command in commands("cuda-gpus-4-5").items()}
    assert seen == {"trainer": "5", "etcd": "", "engine-0": "4", "frontend": "", "sidecar-0": ""}


def test_the_released_stack_computes_in_bfloat16_over_nccl_with_what_stands_behind_the_dashes() -> None:
    argv = commands("cuda")["engine-0"]["argv"]
    behind = argv[argv.index("--") + 1 :]
    assert behind[behind.index("--dtype") + 1] == "bfloat16"
    assert behind[behind.index("--weight-transfer-config") + 1] == '{"backend":"nccl"}'


@pytest.mark.parametrize("name", RUNS)
def test_every_address_of_every_process_is_on_loopback(name: str) -> None:
    for service, command in commands(name).items():
        text = " ".join([*command["argv"], *map(str, command["env"].values())])
        assert "0.0.0.0" not in text, service
        for number in PORTS.values():
            ahead = [part.rsplit(f":{number}", 1)[0] for part in text.split() if part.endswith(f":{number}")]
            assert all(part.endswith("127.0.0.1") for part in ahead), service


def test_a_difference_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without = file_of("prime-rl").read_text().replace('      "--",\n', "")
    monkeypatch.setattr("tests.harness.golden.planned", lambda _name: without)
    assert '-      "--",' in difference("prime-rl")
