"""The command line: every option has a default in the help, nonsense is a usage error, nothing starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.cli import build_parser, main
from harness.config import MismatchBudget, Packing, RefitKind
from harness.dialect import dialect_named
from harness.errors import UsageError
from harness.gpu_options import require_nccl
from harness.request import INVOKED_FROM, Request


def request(*options: str) -> Request:
    return Request.from_args(build_parser().parse_args(["smoke", *options]))


def test_the_defaults_are_those_of_the_contract() -> None:
    default = request()
    assert (default.stack, default.model.kind, default.steps, default.keep_up) == ("cpu", "tiny", 4, False)
    assert default.run_dir is None
    assert dict(default.ports) == {}
    assert default.tensor_parallel == (1,)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        (["--engines", "2"], (1, 1)),
        (["--tensor-parallel", "2"], (2,)),
        (["--engines", "3", "--tensor-parallel", "2"], (2, 2, 2)),
        (["--engine", "tp=2", "--engine", "tp=1"], (2, 1)),
    ],
)
def test_engines_are_counted_or_named_one_by_one(options: list[str], sizes: tuple[int, ...]) -> None:
    assert request(*options).tensor_parallel == sizes
    last = f"engine-{len(sizes) - 1}"
    assert dict(request(*options, "--port", f"{last}-grpc=20001").ports) == {f"{last}-grpc": 20001}
    with pytest.raises(UsageError, match="no such port"):
        request(*options, "--port", f"engine-{len(sizes)}=20001")


def test_options_reach_the_request(tmp_path: Path) -> None:
    options = ("--steps", "8", "--seed", "7", "--learning-rate", "0.5", "--port", "frontend=8000", "--keep-up")
    asked = request(*options, "--run-dir", str(tmp_path), "--step-timeout", "11", "--refit-timeout", "12")
    assert (asked.steps, asked.grpo.seed, asked.grpo.learning_rate, asked.keep_up) == (8, 7, 0.5, True)
    assert dict(asked.ports) == {"frontend": 8000}
    assert (asked.deadlines.step_s, asked.deadlines.refit_s, asked.run_dir) == (11.0, 12.0, tmp_path)


def test_the_packing_of_an_nccl_refit_is_a_gibibyte_twice_unless_it_is_told_otherwise() -> None:
    assert (request().packing, request().rendezvous) == (None, None)
    assert (Packing().buffer_bytes, Packing().buffers, Packing().packed) == (1 << 30, 2, True)
    told = request("--packed-buffer-mib", "256", "--packed-buffers", "3", "--rendezvous", "unique-id")
    assert (told.packing, told.rendezvous) == (Packing(buffer_bytes=256 << 20, buffers=3), "unique-id")
    assert request("--packed-buffers", "3").packing == Packing(buffers=3)
    assert request("--unpacked").packing == Packing(packed=False)


NCCL_OPTIONS = [["--unpacked"], ["--packed-buffer-mib", "1024"], ["--packed-buffers", "2"], ["--rendezvous", "tcp"]]


@pytest.mark.parametrize("options", NCCL_OPTIONS, ids=" ".join)
@pytest.mark.parametrize(("backend", "kind"), [("gloo", "native"), ("gloo", "collective-rpc"), ("nccl", "filesystem")])
def test_what_is_said_of_nccl_is_refused_where_no_refit_goes_over_it(
    options: list[str], backend: str, kind: RefitKind
) -> None:
    asked = request(*options)
    with pytest.raises(UsageError) as refused:
        require_nccl(asked.about_nccl, kind=kind, backend=backend, stack="a")
    assert refused.value.what.startswith(f"{' '.join(options)}: no refit"), "no option that nobody gave"
    assert refused.value.found == f"the stack a, whose backend is {backend}, with --refit {kind}"
    require_nccl((), kind=kind, backend=backend, stack="a")
    require_nccl(asked.about_nccl, kind="native", backend="nccl", stack="a")


def test_every_option_on_nccl_is_named_as_it_was_given() -> None:
    assert request().about_nccl == ()
    asked = request("--packed-buffers", "3", "--rendezvous", "unique-id", "--packed-buffer-mib", "256")
    assert asked.about_nccl == ("--packed-buffer-mib 256", "--packed-buffers 3", "--rendezvous unique-id")


LIMITS = [["--mismatch-budget", "0.1"], ["--step-timeout", "9"], ["--refit-timeout", "9"]]


@pytest.mark.parametrize("options", [*NCCL_OPTIONS, *LIMITS], ids=" ".join)
def test_what_is_said_of_nccl_and_of_limits_is_our_own_trainers(options: list[str]) -> None:
    with pytest.raises(UsageError, match=f"{options[0]} is for the trainer of this project"):
        request("--trainer", sys.executable, *options)


def test_a_way_to_make_a_group_that_a_release_does_not_have_is_refused() -> None:
    dialect_named("dynamo-1.6").require("unique-id")
    dialect_named("native-sidecar").require("tcp")
    with pytest.raises(UsageError, match="no such way"):
        dialect_named("native-sidecar").require("unique-id")


def test_relative_paths_are_the_callers_although_nox_runs_in_the_projects_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(INVOKED_FROM, raising=False)
    assert request("--run-dir", "mine").run_dir == tmp_path / "mine"
    monkeypatch.setenv(INVOKED_FROM, str(tmp_path / "elsewhere"))
    assert request("--run-dir", "mine").run_dir == tmp_path / "elsewhere" / "mine"
    assert request("--run-dir", str(tmp_path)).run_dir == tmp_path
    with pytest.raises(UsageError) as caught:
        request("--model", "../models/mine")
    assert str(tmp_path / "elsewhere" / "../models/mine") in str(caught.value.found)


def test_a_model_brings_its_own_hyperparameters_unless_they_are_given() -> None:
    assert request("--model", "smollm2").grpo.learning_rate < request().grpo.learning_rate
    assert request("--model", "smollm2", "--learning-rate", "0.25").grpo.learning_rate == 0.25


def test_the_mismatch_budget_is_one_number_and_the_others_follow_it() -> None:
    assert request().mismatch is None, "as the precision needs it"
    assert request("--mismatch-budget", "0.01").mismatch == MismatchBudget(max_abs=0.01, mean_abs=1e-3, k3=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        ["smoke", "--steps", "0"],
        ["smoke", "--steps", "-1"],
        ["smoke", "--steps", "1.5"],
        ["smoke", "--steps", "10001"],
        ["smoke", "--learning-rate", "nan"],
        ["smoke", "--mismatch-budget", "0"],
        ["smoke", "--refit-timeout", "inf"],
        ["smoke", "--refit-timeout", "0"],
        ["selftest", "--engines", "2"],
        *(["smoke", "--engines", text] for text in ("0", "-1", "two", "1.5", "65")),
        *(["smoke", "--tensor-parallel", text] for text in ("0", "-2", "x", "65")),
        *(["smoke", "--engine", text] for text in ("2", "tp", "tp=", "tp=0", "tp=-1", "tp=65", "pp=2", "tp=2,tp=1")),
        ["smoke", "--port", "frontend"],
        ["smoke", "--port", "frontend=0"],
        ["smoke", "--port", "frontend=99999"],
        ["smoke", "--no-such-option"],
        ["smoke", "--refit", "pigeon"],
        ["smoke", "--rendezvous", "pigeon"],
        ["smoke", "--packed-buffers", "0"],
        ["smoke", "--packed-buffer-mib", "0"],
        ["smoke", "--gpus", "0,0"],
        ["smoke", "--gpus", "first"],
        ["smoke", "--platform", "tpu"],
        ["no-such-command"],
        [],
    ],
)
def test_nonsense_is_a_usage_error(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(options)
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage:" in captured.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["smoke", "--stack", "nowhere"], "no such stack"),
        (["smoke", "--model", "nothing/here"], "no such model"),
        (["smoke", "--port", "nobody=20000"], "no such port"),
        (["smoke", "--port", "engine-1=20000"], "no such port"),
        (["smoke", "--engines", "2", "--port", "engine-0=20000", "--port", "engine-1=20000"], "given to two services"),
        (["smoke", "--engines", "2", "--port", "engine-0=20000", "--port", "engine-1-grpc=20000"], "to two services"),
        (["smoke", "--engine", "tp=2", "--engines", "2"], "given in two ways"),
        (["smoke", "--sabotage", "misled-second-engine"], "strikes one of several engines"),
        (["smoke", "--sabotage", "past-the-frontend", "--tensor-parallel", "2"], "strikes one of several engines"),
        (["smoke", "--engine", "tp=2", "--tensor-parallel", "2"], "given in two ways"),
        (["smoke", *(["--engine", "tp=1"] * 65)], "too many engines"),
        (["smoke", "--port", "frontend=20000", "--port", "frontend=20001"], "given twice"),
        (["smoke", "--port", "frontend=20000", "--port", "etcd=20000"], "given to two services"),
        (["smoke", "--unpacked", "--packed-buffers", "2"], "cut the weights in two ways"),
        (["smoke", "--unpacked", "--packed-buffer-mib", "1024"], "cut the weights in two ways"),
    ],
)
def test_a_refused_request_has_status_2_and_says_why(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


@pytest.mark.parametrize("command", ["smoke", "up", "status", "logs", "down"])
def test_every_option_is_in_the_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert "exit status" in capsys.readouterr().out


def test_a_fault_of_ours_has_a_status_of_its_own_and_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(_request: Request) -> int:
        raise OSError("no room for a lock file")

    monkeypatch.setattr("harness.cli.smoke", break_down)
    assert main(["smoke", "--json"]) == 70
    captured = capsys.readouterr()
    failure = json.loads(captured.out)["failure"]
    assert (failure["kind"], "no room for a lock file" in failure["what"]) == ("internal", True)
    assert "Traceback" in captured.err


def test_a_folder_that_was_never_a_run_has_no_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--run-dir", str(tmp_path)]) == 2
    assert "no such log" in capsys.readouterr().err


def test_down_without_a_stack_says_where_it_looked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--run-dir", str(tmp_path)]) == 2
    assert "no stack was left running" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--header", "--header-from-env"])
@pytest.mark.parametrize(
    "text", ["Authorization: Bearer top-secret", "Authorization: Bearer top-secret==", "=top-secret"]
)
def test_a_header_in_another_notation_is_refused_and_not_repeated(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((UsageError, SystemExit)) as caught:
        request(option, text)
    assert "top-secret" not in f"{capsys.readouterr().err}{vars(caught.value)}{caught.value}"


@pytest.mark.parametrize(
    ("options", "refit", "sabotage"),
    [
        ([], None, None),
        (["--refit", "filesystem"], "filesystem", None),
        (["--refit", "collective-rpc", "--sabotage", "wrong-rank-offset"], "collective-rpc", "wrong-rank-offset"),
        (["--refit", "filesystem", "--sabotage", "half-a-checkpoint"], "filesystem", "half-a-checkpoint"),
    ],
)
def test_how_weights_travel(options: list[str], refit: str | None, sabotage: str | None) -> None:
    asked = request(*options)
    assert (asked.refit, asked.sabotage) == (refit, sabotage)


@pytest.mark.parametrize(
    "options",
    [
        ["--sabotage", "half-a-checkpoint"],
        ["--sabotage", "half-a-checkpoint", "--refit", "native"],
        ["--sabotage", "wrong-rank-offset", "--refit", "filesystem"],
    ],
)
def test_a_fault_that_a_kind_of_refit_does_not_have_is_refused(options: list[str]) -> None:
    with pytest.raises(UsageError, match="there is no such fault in a refit of kind") as caught:
        request(*options)
    assert caught.value.hint == f"give {caught.value.expected}".split(" or ", maxsplit=1)[0]


def test_adapters_are_our_own_trainers() -> None:
    assert (request().lora, request("--lora").lora) == (False, True)
    with pytest.raises(UsageError, match="--lora is for the trainer of this project"):
        request("--trainer", sys.executable, "--lora")
