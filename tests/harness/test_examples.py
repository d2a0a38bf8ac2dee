"""What can be said of the examples without the programs that they are for."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.configured import configured_topology
from harness.services.command import variables
from harness.services.context import ServiceContext
from tests.harness.test_services import make

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "examples" / "prime-rl" / "launch.py"


def launch(told: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCH), *argv],
        env={"PATH": os.environ["PATH"], **told},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    context = make(tmp_path, engines=2)
    cuda = context.manifest.model_copy(update={"refit_backend": "nccl"})
    context = ServiceContext(context.config, cuda, {})
    return variables(context, configured_topology(context).workers)


def test_the_configuration_of_prime_rl_has_the_addresses_of_the_run(told: dict[str, str]) -> None:
    done = launch(told, "--render")
    assert done.returncode == 0, done.stderr
    config = tomllib.loads(done.stdout)
    assert config["orchestrator"]["model"]["client"] == {
        "base_url": ["http://127.0.0.1:20003/v1"],
        "dynamo_discovery_url": "http://127.0.0.1:20004",
    }
    assert config["weight_broadcast"] == {
        "type": "nccl",
        "host": "127.0.0.1",
        "port": 20005,
        "inference_world_size": 2,
    }
    assert (config["max_steps"], config["model"]["name"]) == (1, "tiny")
    assert config["deployment"]["num_infer_gpus"] == 0, "the engines are the stack's"


def test_prime_rl_is_started_with_it_from_the_checkout_that_was_named(told: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    uv = programs / "uv"
    uv.write_text('#!/bin/sh\necho "$@"\n')
    uv.chmod(0o755)
    done = launch({**told, "PATH": f"{programs}:/usr/bin:/bin"}, "/src/prime-rl", "--clean-output-dir")
    run_dir = told["SMOKESTACK_RUN_DIR"]
    expected = f"run --project /src/prime-rl rl @ {run_dir}/prime-rl.toml --output-dir {run_dir}/prime-rl"
    assert done.stdout.strip() == f"{expected} --clean-output-dir"
    assert tomllib.loads(Path(run_dir, "prime-rl.toml").read_text())["max_steps"] == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SMOKESTACK_REFIT_BACKEND": "gloo"}, "Prime-RL refits over NCCL; this stack has gloo"),
        ({"SMOKESTACK_STEPS": None}, "not set: SMOKESTACK_STEPS"),
    ],
)
def test_what_cannot_be_configured_is_said(told: dict[str, str], changes: dict[str, str | None], said: str) -> None:
    kept = {name: value for name, value in {**told, **changes}.items() if value is not None}
    done = launch(kept, "--render")
    assert done.returncode == 1
    assert said in done.stderr


def test_without_a_stack_it_says_whose_command_it_is() -> None:
    assert "is this the command of --trainer?" in launch({}, "--render").stderr
