"""A harness that is killed cannot clean up: its stack is found, and taken down by hand."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil

from smoke.runner import Command, harness, processes_of, read_events, wait_until


def test_its_stack_is_shown_and_taken_down(tmp_path: Path) -> None:
    run = Command("smoke", "--steps", "50", run_dir=tmp_path / "run")
    wait_until(lambda: any(e["kind"] == "step" for e in read_events(run.run_dir)), "the first step", 180)
    refused = harness("down", run_dir=run.run_dir)
    assert refused.returncode == 2, refused.explain()
    assert f"pid {run.process.pid}" in refused.stderr
    assert run.process.poll() is None

    run.send(signal.SIGKILL)
    killed = run.wait(30)
    (document,) = json.loads(harness("status", "--json", run_dir=run.run_dir).stdout)
    assert document["situation"] == "orphaned"
    assert {name for name, alive in document["alive"].items() if alive} >= {"etcd", "engine-0", "frontend"}

    down = harness("down", run_dir=run.run_dir)
    assert down.returncode == 0, down.explain()
    assert processes_of(killed.events) == [], down.explain()
    assert not Path(document["tmp_dir"]).exists()
    ports = {port for service in document["services"] for port in service["ports"].values()}
    listening = {c.laddr[1] for c in psutil.net_connections("tcp") if c.laddr and c.status == psutil.CONN_LISTEN}
    assert listening.isdisjoint(ports)
