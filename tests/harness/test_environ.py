"""The stack's processes see a short list of the caller's variables, and nothing that could bend a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.environ import service_environment, tool_environment

NONSENSE = {
    "HTTP_PROXY": "http://127.0.0.1:1",
    "https_proxy": "http://127.0.0.1:1",
    "ALL_PROXY": "socks5://nowhere:1",
    "NO_PROXY": "nothing",
    "NATS_SERVER": "nats://nowhere:4222",
    "DYN_SYSTEM_PORT": "1",
    "ETCD_ENDPOINTS": "http://nowhere:2379",
    "VLLM_PORT": "1",
    "VLLM_RPC_BASE_PATH": "/nowhere",
    "PYTHONPATH": "/nowhere",
    "PYTHONHOME": "/nowhere",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "64",
    "LD_PRELOAD": "/nowhere.so",
    "SMOKESTACK_RUN_ID": "another",
    "SMOKESTACK_DIE_WITH_PARENT": "1",
    "TMPDIR": "/nowhere",
    "HF_HOME": "/nowhere",
}


def on(platform: str, caller: dict[str, str], own: dict[str, str] | None = None) -> dict[str, str]:
    return service_environment(
        caller,
        platform=platform,
        environment=Path("/project/.venv-cpu"),
        tmp_dir=Path("/tmp/s"),
        cache_dir=Path("/project/.cache/s"),
        own=own,
    )


def cpu(caller: dict[str, str], own: dict[str, str] | None = None) -> dict[str, str]:
    return on("cpu", caller, own)


def test_nonsense_in_the_callers_environment_has_no_effect() -> None:
    assert cpu({"PATH": "/usr/bin", "HOME": "/home/me", **NONSENSE}) == cpu({"PATH": "/usr/bin", "HOME": "/home/me"})


@given(st.dictionaries(st.text(st.characters(categories=["Lu", "Nd", "Pc"]), min_size=1), st.just("caller's")))
def test_no_variable_that_is_not_on_the_list_gets_through(caller: dict[str, str]) -> None:
    assert set(cpu(caller)) - set(cpu({})) <= {"USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR"} | {
        name for name in caller if name.startswith("LC_") or "CERT" in name or "CA_BUNDLE" in name
    }


@pytest.mark.parametrize("name", ["USER", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "NIX_SSL_CERT_FILE"])
def test_the_callers_identity_language_and_certificates_stay(name: str) -> None:
    assert cpu({name: "mine"})[name] == "mine"


def test_the_stacks_programs_are_found_first_and_then_the_callers() -> None:
    assert cpu({"PATH": "/usr/bin:/bin"})["PATH"] == "/project/.venv-cpu/bin:/usr/bin:/bin"
    assert cpu({})["PATH"].startswith("/project/.venv-cpu/bin:")


@pytest.mark.parametrize("name", ["CUDA_HOME", "LD_LIBRARY_PATH"])
def test_the_machines_devices_and_driver_libraries_count_only_on_cuda(name: str) -> None:
    assert name not in cpu({name: "0"})
    assert on("cuda", {name: "0"})[name] == "0"


def test_loopback_goes_through_no_proxy() -> None:
    for name in ("NO_PROXY", "no_proxy"):
        assert {"127.0.0.1", "localhost"} <= set(cpu({})[name].split(","))


def test_everything_is_written_inside_the_project_or_the_runs_scratch_folder() -> None:
    environment = cpu({})
    for name in ("HOME", "TMPDIR", "VLLM_RPC_BASE_PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "VLLM_CONFIG_ROOT"):
        assert Path(environment[name]).is_relative_to("/tmp/s")
    for name in ("XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert Path(environment[name]).is_relative_to("/project/.cache/s")


def test_nothing_asks_a_hub_or_reports_usage_and_packages_of_the_user_stay_out() -> None:
    environment = cpu({})
    assert [environment[name] for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "PYTHONNOUSERSITE")] == ["1"] * 3


def test_a_services_own_variables_have_the_last_word() -> None:
    own = {"DYN_SYSTEM_PORT": "8081", "HF_HUB_OFFLINE": "0", "HOME": "/else"}
    environment = cpu({"DYN_SYSTEM_PORT": "1", "HOME": "/home/me"}, own)
    assert environment.items() >= own.items()


def test_the_build_plane_keeps_proxies_and_wheelhouses_but_not_what_bends_python() -> None:
    kept = {"HTTPS_PROXY": "http://proxy:3128", "UV_FIND_LINKS": "/wheels", "PIP_FIND_LINKS": "/wheels", "PATH": "/bin"}
    dropped = {"PYTHONPATH": "/x", "PYTHONDONTWRITEBYTECODE": "1", "VLLM_PORT": "1", "DYN_X": "1", "VIRTUAL_ENV": "/v"}
    assert tool_environment({**kept, **dropped}) == kept
