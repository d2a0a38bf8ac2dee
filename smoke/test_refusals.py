"""What is wrong is said before anything starts: options, model folders, ports, places."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from smoke.runner import ROOT, harness


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--steps", "0"), "--steps"),
        (("--steps", "many"), "--steps"),
        (("--no-such-option",), "--no-such-option"),
        (("--stack", "nowhere"), "no such stack"),
        (("--model", "nothing"), "no such model"),
        (("--port", "frontend=70000"), "1 to 65535"),
        (("--port", "nobody=20000"), "no such port"),
        (("--engines", "2", "--port", "engine-0=20001", "--port", "engine-1=20001"), "given to two services"),
        (("--engines", "0"), "--engines"),
        (("--engine", "tp=2", "--engines", "2"), "given in two ways"),
    ],
)
def test_a_usage_error_has_status_2_and_makes_no_run(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    refused = harness("smoke", *options, run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    assert said in refused.stderr
    assert refused.stdout == ""
    assert not (tmp_path / "run").exists()


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "ranks that the model's heads do not come out to": (("--tensor-parallel", "3"), "cannot divide this model over 3"),
    "one engine of two of such ranks": (("--engine", "tp=1", "--engine", "tp=3"), "engine-1 cannot divide this model"),
    "fewer GPUs than ranks": (("--stack", "cuda", "--tensor-parallel", "2", "--gpus", "0,1"), "GPUs does not fit"),
    "more GPUs than ranks": (("--stack", "cuda", "--gpus", "0,1,2"), "GPUs does not fit"),
    "packing in two ways": (("--unpacked", "--packed-buffers", "3"), "cut the weights in two ways"),
    "packing that neither end heeds": (("--packed-buffer-mib", "256"), "no refit of this run goes over NCCL"),
    "a rendezvous that neither end heeds": (("--rendezvous", "unique-id"), "no refit of this run goes over NCCL"),
    "two engines on one port": (
        ("--engines", "2", "--port", "engine-0=20001", "--port", "engine-1=20001"),
        "given to two services",
    ),
    "an engine on another one's gRPC port": (
        ("--engines", "2", "--port", "engine-0-grpc=20001", "--port", "engine-1=20001"),
        "given to two services",
    ),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_configuration_is_refused_before_any_process_is_started(how: str, tmp_path: Path) -> None:
    options, said = WRONG[how]
    refused = harness("smoke", *options, "--json", run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    failure = json.loads(refused.stdout)["failure"]
    assert failure["kind"] == "usage"
    assert said in failure["what"]
    assert all(failure[name] for name in ("expected", "found", "hint")), failure
    assert not [event for event in refused.events if event["kind"] == "service.started"]


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine may have GPUs")
@pytest.mark.parametrize("stack", ["cuda", "prime-rl"])
def test_without_gpus_a_run_on_them_ends_at_once_with_what_the_doctor_finds(stack: str, tmp_path: Path) -> None:
    options = ("--platform", "cuda", "--stack", stack, "--model", "Qwen/Qwen3-0.6B")
    before = _generated(*_BUILT)
    refused = harness("smoke", *options, "--json", run_dir=tmp_path / "run")
    assert refused.returncode == 10, refused.explain()
    assert json.loads(refused.stdout)["failure"]["kind"] == "doctor"
    assert "gpu.count: no GPU" in refused.stderr
    assert _generated(*_BUILT) == before


def test_a_run_on_gpus_is_never_one_on_the_cpu(tmp_path: Path) -> None:
    refused = harness("smoke", "--platform", "cuda", "--stack", "cpu", run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    assert "does not run on the platform that was asked for" in refused.stderr


@pytest.mark.parametrize("missing", ["tokenizer.json", "chat_template.jinja", "generation_config.json"])
def test_an_incomplete_model_folder_is_refused_by_name(missing: str, model_folder: Path, tmp_path: Path) -> None:
    """F16."""
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    (folder / missing).unlink()
    refused = harness("smoke", "--model", str(folder), run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    assert missing.split(".", maxsplit=1)[0].replace("_", " ") in refused.stderr.replace("_", " ")
    assert not (tmp_path / "run").exists()


def test_a_taken_port_names_its_holder(tmp_path: Path) -> None:
    """F17, for a port that was asked for."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = harness("smoke", "--port", f"engine-0={port}", run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    assert f"port {port} for engine-0 is taken" in refused.stderr
    assert "pytest" in refused.stderr


def test_a_used_run_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("precious")
    refused = harness("smoke", run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    assert (tmp_path / "run" / "mine").read_text() == "precious"


def test_dry_run_prints_every_command_and_writes_nothing(tmp_path: Path) -> None:
    before = _generated()
    dry = harness("smoke", "--dry-run", "--json", run_dir=tmp_path / "run")
    assert dry.returncode == 0, dry.explain()
    commands = {command["service"]: command for command in json.loads(dry.stdout)["commands"]}
    assert list(commands) == ["trainer", "etcd", "engine-0", "frontend", "sidecar-0"]
    assert "--" in commands["engine-0"]["argv"]
    assert commands["engine-0"]["env"]["VLLM_SERVER_DEV_MODE"] == "1"
    assert _generated() == before
    assert not (tmp_path / "run").exists()


def test_dry_run_tells_each_engines_processes_and_the_ranks_of_the_group(tmp_path: Path) -> None:
    options = ("--engine", "tp=2", "--engine", "tp=1")
    told = json.loads(harness("smoke", "--dry-run", "--json", *options, run_dir=tmp_path / "run").stdout)
    names = [command["service"] for command in told["commands"]]
    assert names == ["trainer", "etcd", "engine-0", "engine-1", "frontend", "sidecar-0", "sidecar-1"]
    assert [(one["rank"], one["engine"], one["offset"]) for one in told["ranks"]] == [
        (1, "engine-0", 1),
        (2, "engine-0", 1),
        (3, "engine-1", 3),
    ]
    shown = harness("smoke", "--dry-run", *options, run_dir=tmp_path / "run").stdout
    assert "# ranks 1-2  engine-0  offset 1" in shown


_BUILT = ("dist", ".nox")


def _generated(*folders: str) -> set[Path]:
    """Everything that builds and runs write in the project, or in these folders of it."""
    where = folders or ("runs", "dist", ".cache", ".nox")
    return {path for folder in where for path in (ROOT / folder).rglob("*")}
