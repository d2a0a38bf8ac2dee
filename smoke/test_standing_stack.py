"""`up`, `status`, `logs`, `down`: a stack that stays, started with nonsense in the caller's environment (F15)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from smoke.runner import ROOT, SECRETS, WITH_KEY, harness, processes_of, read_events, secrets_found

NONSENSE = {
    "HTTP_PROXY": "http://192.0.2.1:9",
    "HTTPS_PROXY": "http://192.0.2.1:9",
    "ALL_PROXY": "socks5://192.0.2.1:9",
    "http_proxy": "http://192.0.2.1:9",
    "NATS_SERVER": "nats://192.0.2.1:9",
    "ETCD_ENDPOINTS": "http://192.0.2.1:9",
    "DYN_SYSTEM_PORT": "1",
    "DYN_NAMESPACE": "elsewhere",
    "DYN_DISCOVERY_BACKEND": "nowhere",
    "VLLM_API_KEY": "nonsense",
    "VLLM_PORT": "1",
    "PYTHONPATH": "/nonexistent",
}


@dataclass(frozen=True)
class Standing:
    """A stack that is up: what `up --json` printed, and its run folder."""

    document: dict[str, Any]
    run_dir: Path

    def url(self, name: str) -> str:
        url: str = self.document["urls"][name]
        return url


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    run_dir = tmp_path_factory.mktemp("standing") / "run"
    up = harness("up", "--json", *WITH_KEY, run_dir=run_dir, env={**NONSENSE, **SECRETS})
    try:
        assert up.returncode == 0, up.explain()
        yield Standing(json.loads(up.stdout), run_dir)
    finally:
        down = harness("down", run_dir=run_dir)
        assert down.returncode == 0, down.explain()
        assert processes_of(read_events(run_dir)) == []


def test_it_answers_sums_at_the_address_that_up_printed(standing: Standing) -> None:
    """The warmed-up weights are served, so that an answer is a number."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "3+4="}],
        "max_tokens": 8,
        "temperature": 0,
    }
    url = standing.url("frontend") + "/v1/chat/completions"
    answer = httpx.post(url, json=body, timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"].strip().isdecimal(), answer.text


@pytest.mark.parametrize(
    ("method", "path", "asks_for_a_key"),
    [
        ("GET", "/v1/models", True),
        ("POST", "/inference/v1/generate", True),
        ("GET", "/health", False),
        ("GET", "/weight_info", False),
        ("GET", "/is_paused", False),
        ("POST", "/reset_prefix_cache", False),
    ],
)
def test_the_engine_asks_for_the_key_where_the_documentation_says_so(
    standing: Standing, method: str, path: str, asks_for_a_key: bool
) -> None:
    body = {"model": "tiny", "token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 1}}
    keys = (None, "nonsense", SECRETS["ROLLOUT_KEY"])
    statuses = [
        httpx.request(
            method,
            standing.url("engine-0") + path,
            json=body if path.endswith("generate") else None,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            timeout=30,
            trust_env=False,
        ).status_code
        for key in keys
    ]
    assert statuses == ([401, 401, 200] if asks_for_a_key else [200, 200, 200])


@pytest.mark.parametrize("key", [None, "nonsense"])
def test_dynamo_asks_for_no_key(standing: Standing, key: str | None) -> None:
    """Its own routes do not, and it reaches the engine where that asks for none."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    control = standing.url("sidecar-0") + "/engine/control/is_paused"
    generate = standing.url("frontend") + "/inference/v1/generate"
    body = {"model": "tiny", "token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 1}}
    with httpx.Client(headers=headers, timeout=30, trust_env=False) as client:
        answers = [
            client.get(standing.url("discovery")),
            client.get(standing.url("frontend") + "/v1/models"),
            client.post(generate, json=body),
            client.post(control, json={}),
        ]
    assert [answer.status_code for answer in answers] == [200] * 4


def test_its_secrets_are_in_no_file_and_no_argument(standing: Standing) -> None:
    scratch = Path(json.loads((standing.run_dir / "stack.json").read_text())["tmp_dir"])
    assert secrets_found(standing.run_dir, scratch) == []
    headers = json.loads((standing.run_dir / "config.json").read_text())["headers"]
    assert headers == {
        "Authorization": "API key of the variable ROLLOUT_KEY",
        "X-Tenant": "--header",
        "X-Trace": "variable ROLLOUT_TRACE",
    }


def test_every_listening_port_is_on_loopback(standing: Standing) -> None:
    pids = {process.pid for process in processes_of(read_events(standing.run_dir))}
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in pids]
    assert len(listening) >= 7
    assert {c.laddr[0] for c in listening if c.laddr} == {"127.0.0.1"}, listening
    (told,) = (event for event in read_events(standing.run_dir) if event["kind"] == "listening")
    assert {c.laddr[1] for c in listening if c.laddr} <= {one["port"] for one in told["sockets"]}


def test_status_names_what_lives(standing: Standing) -> None:
    status = harness("status", "--json", run_dir=standing.run_dir)
    (document,) = json.loads(status.stdout)
    assert document["alive"] == dict.fromkeys(("etcd", "engine-0", "frontend", "sidecar-0"), True)
    for service in document["services"]:
        assert psutil.pid_exists(service["pid"])


def test_logs_prints_one_service_alone(standing: Standing) -> None:
    logs = harness("logs", "engine-0", "-n", "3", run_dir=standing.run_dir)
    lines = logs.stdout.splitlines()
    assert len(lines) == 3, logs.explain()
    assert all(line.startswith("engine-0 | ") for line in lines)


def test_an_unknown_log_lists_the_known_ones(standing: Standing) -> None:
    logs = harness("logs", "nobody", run_dir=standing.run_dir)
    assert logs.returncode == 2
    assert "engine-0" in logs.stderr


def test_its_environment_is_not_changed_below_it(standing: Standing) -> None:
    stamp = ROOT / ".venv-cpu" / "smokestack-install.json"
    before = stamp.read_bytes()
    install = subprocess.run(
        [sys.executable, "-m", "scripts", "install", "--stack", "cpu", "--force"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert install.returncode == 20, install.stderr
    assert "a run is using it" in install.stderr
    for service in standing.document["services"]:
        assert f"pid {service['pid']}: " in install.stderr
    assert stamp.read_bytes() == before


def test_a_second_stack_is_refused_its_fixed_port_and_told_by_whom(standing: Standing, tmp_path: Path) -> None:
    """F17: a port that was asked for is held by another program, here the first stack's frontend."""
    port = httpx.URL(standing.url("frontend")).port
    refused = harness("up", "--port", f"frontend={port}", run_dir=tmp_path / "run")
    assert refused.returncode == 2, refused.explain()
    assert f"port {port} for frontend is taken" in refused.stderr
    pid = next(s["pid"] for s in standing.document["services"] if s["service"] == "frontend")
    assert f"pid {pid} " in refused.stderr
    assert not (tmp_path / "run").exists()
