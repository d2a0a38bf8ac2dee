"""Variables that a run drops are named, without their values."""

from __future__ import annotations

import pytest
from doctor_fakes import FakeMachine, look

from scripts.doctor import runtime_variables

DROPPED, PYTHON, HUB = runtime_variables.CHECKS


def test_a_clean_shell_is_fine() -> None:
    assert [look(each, FakeMachine()).status for each in runtime_variables.CHECKS] == ["ok"] * 3
    assert look(DROPPED, FakeMachine()).found == "none set"


def test_variables_of_the_stack_are_named_and_said_to_be_dropped() -> None:
    environ = {"NATS_SERVER": "nats://u:SECRET@h", "DYN_SYSTEM_PORT": "1", "ETCD_ENDPOINTS": "x", "VLLM_PORT": "1"}
    found = look(DROPPED, FakeMachine(environ={**environ, "HOME": "/home/me"}))
    assert found.found == "DYN_SYSTEM_PORT, ETCD_ENDPOINTS, NATS_SERVER, VLLM_PORT: set, and dropped by a run"


def test_of_many_variables_some_are_named() -> None:
    eight = FakeMachine(environ={f"VLLM_{index:02}": "1" for index in range(8)})
    assert look(DROPPED, eight).found.endswith("VLLM_07: set, and dropped by a run")
    fake = FakeMachine(environ={f"VLLM_{index:02}": "1" for index in range(11)})
    assert look(DROPPED, fake).found.startswith("VLLM_00, VLLM_01, ")
    assert " and 3 more: set" in look(DROPPED, fake).found


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHOME", "LD_PRELOAD"])
def test_code_that_every_program_would_load_is_a_warning(name: str) -> None:
    found = look(PYTHON, FakeMachine(environ={name: "/opt/secret"}))
    assert (found.status, found.fix) == ("warn", f"unset {name}")
    assert "/opt/secret" not in found.found
    assert look(PYTHON, FakeMachine(environ={name: ""})).status == "ok"


@pytest.mark.parametrize(("value", "state"), [("1", "offline"), ("0", "online"), (None, "online")])
def test_what_the_hubs_clients_would_do_is_for_the_record(value: str | None, state: str) -> None:
    environ = {"HF_TOKEN": "SECRET"} if value is None else {"HF_TOKEN": "SECRET", "HF_HUB_OFFLINE": value}
    found = look(HUB, FakeMachine(environ=environ))
    assert found.status == "ok"
    assert f"programs are {state}; set: " in found.found
    assert "HF_TOKEN" in found.found
    assert "SECRET" not in found.found
