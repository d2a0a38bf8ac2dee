"""etcd, the planes and the sidecar's dialect are as a run will need them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_fakes import CPU, FakeMachine, look
from doctor_installs import PINNED, ROOT, installed

from scripts.doctor import runtime_services
from scripts.doctor.asking import Answer

ETCD, PLANES, SIDECAR = runtime_services.CHECKS
PROGRAM = f"{ROOT}/.venv-cpu/bin/etcd"
SET = {"discovery": "etcd", "request": "tcp", "event": "zmq"}


def with_etcd(said: str | Answer) -> FakeMachine:
    fake = installed()
    fake.files[PROGRAM] = ""
    fake.answers[f"{PROGRAM} --version"] = said
    return fake


def test_an_etcd_that_tells_its_version_is_fine() -> None:
    found = look(ETCD, with_etcd("etcd Version: 3.5.1\nGit SHA: e8732fb5f\n"))
    assert (found.status, found.found) == ("ok", "etcd 3.5.1")


@pytest.mark.parametrize("said", [Answer(1, "exec format error"), Answer(None, problem="too slow"), "hello"])
def test_an_etcd_that_does_not_run_is_a_failure(said: str | Answer) -> None:
    found = look(ETCD, with_etcd(said))
    assert (found.status, found.fix) == ("fail", "./noxw -s install -- --stack cpu --force")
    assert found.found.startswith("etcd --version: ")


def test_an_environment_without_etcd_fails() -> None:
    assert look(ETCD, installed()).found == f"no {PROGRAM}"


def test_planes_that_are_all_set_are_fine() -> None:
    found = look(PLANES, FakeMachine(), replace(CPU, planes=SET))
    assert (found.status, found.found) == ("ok", "discovery = etcd, request = tcp, event = zmq")


@pytest.mark.parametrize("planes", [{}, {**SET, "event": "nats"}, {"discovery": "etcd", "event": "zmq"}])
def test_a_plane_that_would_need_nats_fails(planes: dict[str, str]) -> None:
    found = look(PLANES, FakeMachine(), replace(CPU, planes=planes))
    assert found.status == "fail"
    assert "stacks/cpu/stack.toml" in found.fix


def test_the_installs_own_question_to_the_sidecar_is_enough() -> None:
    found = look(SIDECAR, installed())
    assert (found.status, found.found.endswith("(vLLM 0.32.0+cpu)")) == ("ok", True)


def test_a_sidecar_that_was_not_asked_fails() -> None:
    found = look(SIDECAR, installed(asserted=["5 packages have the locked versions"]))
    assert (found.status, found.found) == ("fail", "the install did not ask the sidecar")


@pytest.mark.parametrize(
    ("vllm", "flag", "status"),
    [("0.28.0", "", "fail"), ("0.29.1", "", "fail"), ("0.29.1", " --vllm-rl-world-size", "ok"), ("0.30.0", "", "ok")],
)
def test_an_engine_that_hides_its_world_size_needs_the_flag(vllm: str, flag: str, status: str) -> None:
    packages = {**PINNED, "vllm": vllm}
    fake = installed(packages, pinned=packages, asserted=[f"the sidecar knows --grpc-endpoint{flag}"])
    assert look(SIDECAR, fake).status == status
