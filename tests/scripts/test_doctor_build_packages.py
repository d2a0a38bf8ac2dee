"""The doctor on packages: where they come from, torch's index, locks that fit each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_builds import LOCKS, STACK, found, machine

from scripts.doctor.asking import Answer

PIP = "/usr/bin/python3 -m pip config list --disable-pip-version-check"


@pytest.mark.parametrize(
    ("environ", "status", "words"),
    [
        ({}, "ok", "index of the installers themselves"),
        ({"PIP_INDEX_URL": "https://mirror/simple"}, "ok", "index https://mirror/simple"),
        ({"PIP_NO_INDEX": "1"}, "fail", "closed by PIP_NO_INDEX; no wheelhouse"),
        ({"UV_OFFLINE": "1", "UV_FIND_LINKS": "/wheels"}, "warn", "1 of 1 are not in it (torch==2.13.0+cu130)"),
        ({"UV_FIND_LINKS": "/gone"}, "fail", "/gone, which is no folder"),
        ({"PIP_FIND_LINKS": "/gone"}, "warn", "not there: /gone"),
        ({"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/wheels"}, "ok", "wheelhouse /wheels"),
        ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "https://host/wheels"}, "ok", "wheelhouse https://host/wheels"),
    ],
)
def test_packages_can_come_from_somewhere(environ: dict[str, str], status: str, words: str) -> None:
    made = machine(environ=environ)
    made.folders.add("/wheels")
    finding = found("package-index", made)
    assert finding.status == status
    assert words in finding.found


def test_a_wheelhouse_with_everything_needs_no_index() -> None:
    made = machine(environ={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"})
    made.files["/wheels/torch-2.13.0+cu130-cp312-cp312-linux_x86_64.whl"] = ""
    assert found("package-index", made).found.endswith("all 1 packages")


def test_what_only_pips_configuration_says_counts_too() -> None:
    made = machine()
    made.answers[PIP] = "global.find-links='/wheels'\nglobal.no-index='true'\n"
    assert found("package-index", made).status == "warn"
    made.answers[PIP] = Answer(None, problem="python3 did not answer within 4 s")
    assert found("package-index", made).fix == "python3 -m pip config list"
    made.answers[PIP] = Answer(1, "No module named pip")
    assert found("package-index", made).status == "ok"


@pytest.mark.parametrize(
    ("pin", "backend", "chosen", "status"),
    [
        ("2.13.0+cu130", "cu130", "", "ok"),
        ("2.13.0", "cu130", "", "skip"),
        ("2.13.0+cpu", "cu130", "", "fail"),
        ("2.13.0+cu130", "cu130", "cpu", "warn"),
    ],
)
def test_torch_is_of_the_stacks_backend(pin: str, backend: str, chosen: str, status: str) -> None:
    stack = replace(STACK, packages={"torch": pin}, torch_backend=backend)
    assert found("torch-index", machine(environ={"UV_TORCH_BACKEND": chosen}), stack).status == status


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("requirements.lock", None, "no stacks/prime-rl/requirements.lock"),
        ("build.lock", None, "no stacks/prime-rl/build.lock"),
        ("requirements.lock", "torch==2.12.0", "requirements.lock has torch 2.12.0"),
        ("requirements.lock", "numpy==1.0", "requirements.lock has torch not at all"),
        ("build.lock", "torch==2.12.0", "torch 2.12.0 to build with, torch 2.13.0+cu130 to run with"),
    ],
)
def test_locks_that_do_not_fit_each_other_are_resolved_again(file: str, text: str | None, words: str) -> None:
    made = machine()
    del made.files[f"{LOCKS}/{file}"]
    if text is not None:
        made.files[f"{LOCKS}/{file}"] = text
    finding = found("locks", made)
    assert (finding.status, finding.fix) == ("fail", "./noxw -s lock -- --stack prime-rl")
    assert words in finding.found
