"""The doctor's command, on the machine at hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from doctor_itself import SCHEMA, ends

from scripts.doctor import checks, command_line
from scripts.doctor.subject import Options
from scripts.layout import PROJECT_ROOT


def doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.doctor", *arguments],
        cwd=PROJECT_ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_examines_this_machine_in_time_and_writes_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    done = doctor("--json", HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert time.monotonic() - began < 10
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert [each["id"] for each in document["checks"]] == [each.id for each in checks.CHECKS]
    assert [each for each in document["checks"] if "the doctor itself failed" in each["found"]] == []
    assert done.returncode == (10 if any(each["status"] == "fail" for each in document["checks"]) else 0)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_tools_is_told_how_to_get_them(tmp_path: Path) -> None:
    done = doctor("--stack", "prime-rl", "--json", PATH=str(tmp_path), HOME=str(tmp_path), CUDA_HOME=str(tmp_path))
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    failed = {each["id"]: each["fix"] for each in document["checks"] if each["status"] == "fail"}
    assert done.returncode == 10
    assert {"host.git", "build.rust", "build.protoc", "build.compilers", "build.libraries"} <= failed.keys()
    assert all(failed.values())
    assert [each for each in document["checks"] if "the doctor itself failed" in each["found"]] == []


def test_the_exit_status_follows_the_findings() -> None:
    done = doctor("--for", "run", "--check", "host.linux")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("PASS  0 failed, 0 to know about, 1 ok, 0 skipped")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--stack", "nope"],
        ["--stack", "../cpu"],
        ["--for", "fun"],
        ["--check", "host.nope"],
        ["--port", "http"],
        ["--port", "http=0"],
        ["--port", "http=x"],
        ["--jobs", "0"],
    ],
)
def test_a_wrong_option_is_status_2_and_looks_at_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command_line.main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


def test_options_reach_the_checks() -> None:
    parser = command_line.parser()
    chosen = parser.parse_args(
        ["--port", "http=8000", "--source", "vllm=/src", "--jobs", "3", "--recipe", "dynamo", "--model", "m"]
    )
    options = command_line._options(parser, chosen)
    assert options == Options(
        ports={"http": 8000}, jobs=3, sources={"vllm": Path("/src")}, recipes=("dynamo",), model=Path("m")
    )


def test_told_to_stop_it_stops_and_leaves_no_question_behind(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    for name in ("git", "python3"):
        (tmp_path / name).write_text(
            f"#!/bin/sh\n/bin/echo $$ >{marker}.$$\n/bin/mv {marker}.$$ {marker}\nexec /bin/sleep 600\n"
        )
        (tmp_path / name).chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.doctor", "--check", "host.git"],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    try:
        deadline = time.monotonic() + 10
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.wait()
    assert ends(int(marker.read_text()))
