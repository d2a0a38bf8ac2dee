"""The doctor on the Pythons and git of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_fakes import CPU, CUDA, look
from doctor_hosts import PYTHON, ROOT, machine, the

from scripts.doctor import (
    interpreters,
)
from scripts.doctor.asking import Answer
from scripts.doctor.facts import StackFacts
from scripts.doctor.subject import Options


@pytest.mark.parametrize(("version", "status"), [((3, 9, 18), "fail"), ((3, 10, 13), "fail"), ((3, 11, 0), "ok")])
def test_an_old_python3_is_said_to_be_old(version: tuple[int, int, int], status: str) -> None:
    assert look(the("python3"), machine(python=version)).status == status


def test_a_python3_without_ensurepip_is_told_the_package() -> None:
    bare = machine()
    bare.answers["/usr/bin/python3 -I -c import ensurepip, venv"] = Answer(
        1, "ModuleNotFoundError: No module named 'ensurepip'"
    )
    found = look(the("venv"), bare)
    assert (found.status, found.fix) == ("fail", "sudo apt-get install -y python3-venv")
    bare.folders.add(f"{ROOT}/.tool/py3.11-abc")
    assert look(the("venv"), bare).status == "ok"


@pytest.mark.parametrize(
    ("said", "uv", "status"),
    [("2024.4.15", True, "ok"), ("2023.4.22", True, "warn"), ("2025.2.9", False, "warn"), (None, True, "warn")],
)
def test_a_nox_of_ones_own_is_new_enough_and_has_uv_beside_it(said: str | None, uv: bool, status: str) -> None:
    made = machine()
    made.programs["nox"] = "/usr/bin/nox"
    made.answers["nox --version"] = Answer(1, "broken") if said is None else said
    if uv:
        made.programs["uv"] = "/usr/bin/uv"
        made.answers["uv --version"] = "uv 0.9.1 (abc)"
    assert look(the("nox"), made).status == status


def test_the_stacks_python_is_found_on_path_or_managed_by_uv() -> None:
    made = machine(environ={"PATH": "/usr/bin:/opt/bin"})
    assert look(the("stack-python"), made).fix.startswith("./noxw --list >/dev/null && .tool/py*/bin/uv python install")
    made.folders.add(f"{ROOT}/.tool/py3.11-ab/bin")
    made.programs["uv"] = f"{ROOT}/.tool/py3.11-ab/bin/uv"
    assert look(the("stack-python"), made).fix.startswith(".tool/py3.11-ab/bin/uv python install 3.11")
    made.programs["uv"] = "/usr/bin/uv"
    assert look(the("stack-python"), made).fix.startswith("uv python install 3.11")
    made.files["/opt/bin/python3.11"] = ""
    made.answers[f"/opt/bin/python3.11 -I -S -c {interpreters._QUESTION}"] = PYTHON.format("3, 11, 9", "True")
    assert look(the("stack-python"), made).found == "/opt/bin/python3.11 (3.11.9)"
    managed = "/home/me/.local/share/uv/python/cpython-3.11.11-linux-x86_64-gnu/bin/python3.11"
    made.files[managed] = ""
    made.answers[f"{managed} -I -S -c {interpreters._QUESTION}"] = PYTHON.format("3, 11, 11", "True")
    assert look(the("stack-python"), made).found == f"{managed} (3.11.11)"


@pytest.mark.parametrize(
    "said",
    [
        PYTHON.format("3, 10, 1", "True"),
        PYTHON.format("3, 11, 1", "True").replace("True, '/usr", "False, '/usr"),
        "pyenv: python3.11: command not found",
    ],
    ids=["another version", "an environment's", "a shim that leads nowhere"],
)
def test_a_python_that_is_not_the_stacks_does_not_count(said: str) -> None:
    made = machine()
    made.answers[f"/usr/bin/python3.11 -I -S -c {interpreters._QUESTION}"] = said
    assert look(the("stack-python"), made).status == "fail"


def test_a_python_of_pyenv_that_is_not_on_path_is_the_nearest_fix() -> None:
    made = machine()
    made.folders.add("/home/me/.pyenv/versions/3.11.7")
    assert look(the("stack-python"), made).fix == 'export PATH="/home/me/.pyenv/versions/3.11.7/bin:$PATH"'


# git


@pytest.mark.parametrize(("stack", "status"), [(CPU, "warn"), (CUDA, "fail")])
def test_no_git_matters_most_where_sources_are_fetched(stack: StackFacts, status: str) -> None:
    made = machine()
    made.answers["git --version"] = Answer(None, problem="no git")
    assert look(the("git"), made, stack).status == status
    made.answers["git --version"] = "git version 2.17.1"
    assert look(the("git"), made, stack).status == status


def test_a_checkout_of_another_user_is_told_the_setting() -> None:
    made = machine()
    made.answers[f"git -C {ROOT} rev-parse --git-dir"] = Answer(128, "fatal: detected dubious ownership in repository")
    found = look(the("safe-directory"), made)
    assert (found.status, found.fix) == ("warn", f"git config --global --add safe.directory {ROOT}")
    made.answers[f"git -C {ROOT} rev-parse --git-dir"] = ".git"
    made.files["/src/v l/.git"] = ""
    made.answers["git -C /src/v l rev-parse --git-dir"] = Answer(128, "fatal: detected dubious ownership in repository")
    found = look(the("safe-directory"), made, CUDA, options=Options(sources={"vllm": Path("/src/v l")}))
    assert (found.status, found.fix) == ("fail", "git config --global --add safe.directory '/src/v l'")


def test_a_folder_that_is_no_checkout_has_nothing_to_trust() -> None:
    made = machine()
    del made.files[f"{ROOT}/.git/HEAD"]
    assert look(the("safe-directory"), made).status == "skip"
