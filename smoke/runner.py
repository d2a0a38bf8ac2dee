"""Runs `python -m harness` as a user would, and finds what of a run is left on the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
WAIT_S = 420.0


@dataclass(frozen=True)
class Outcome:
    """A finished command: its exit status, both outputs and the folder of its run."""

    returncode: int
    stdout: str
    stderr: str
    run_dir: Path
    seconds: float

    @property
    def verdict(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads((self.run_dir / "verdict.json").read_text())
        return parsed

    @property
    def events(self) -> list[dict[str, Any]]:
        return read_events(self.run_dir)

    def only(self, kind: str, **where: Any) -> dict[str, Any]:
        """The one event of `kind` with these fields."""
        [event] = [e for e in self.events if e["kind"] == kind and all(e[name] == v for name, v in where.items())]
        return event

    def explain(self) -> str:
        """For assertion messages: how it ended and what it printed last."""
        return f"exit status {self.returncode}, {self.run_dir}\n{self.stderr[-4000:]}"


class Command:
    """A harness command in the background, in a session of its own."""

    def __init__(
        self,
        *argv: str,
        run_dir: Path,
        env: Mapping[str, str] | None = None,
        root: Path = ROOT,
    ) -> None:
        self.run_dir = run_dir
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness", *argv, "--run-dir", str(run_dir)],
            cwd=root,
            env={**os.environ, "NO_COLOR": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def still_runs_after(self, seconds: float) -> bool:
        """Whether it has not ended by itself within `seconds`."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def wait(self, seconds: float = WAIT_S) -> Outcome:
        stdout, stderr = self.process.communicate(timeout=seconds)
        return Outcome(self.process.returncode, stdout, stderr, self.run_dir, time.monotonic() - self.started)


def harness(*argv: str, run_dir: Path, **options: Any) -> Outcome:
    """Run one command to its end."""
    return Command(*argv, run_dir=run_dir, **options).wait()


def read_events(run_dir: Path) -> list[dict[str, Any]]:
    """Events written so far; a last line that is still being written is left out."""
    path = run_dir / "events.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Poll `condition`; an assertion error names `what` when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not seen within {seconds:g} s: {what}"
        time.sleep(0.02)


def processes_of(events: list[dict[str, Any]]) -> list[psutil.Process]:
    """Processes of a run that still live: in a session that one of its services leads, or with the run's mark."""
    sessions = {event["pid"] for event in events if event["kind"] == "service.started"}
    marks = {event["config"]["run_id"] for event in events if event["kind"] == "run.started"}
    living = []
    for process in psutil.process_iter():
        try:
            ours = os.getsid(process.pid) in sessions or process.environ().get("SMOKESTACK_RUN_ID") in marks
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return living


SECRETS = {"ROLLOUT_KEY": "sk-smoke-9f31c7d2a8b64e05", "ROLLOUT_TRACE": "trace-4711-aabbccdd"}
WITH_KEY = (
    *("--api-key-env", "ROLLOUT_KEY"),
    *("--header", "X-Tenant=blue"),
    *("--header-from-env", "X-Trace=ROLLOUT_TRACE"),
)
"""Options with which a command carries `SECRETS`, given in its environment."""


def secrets_found(*folders: Path) -> list[str]:
    """Files and arguments of processes in which one of `SECRETS` can be read."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    found = [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS.values())]
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        found += [f"pid {process.info['pid']}: {line}" for secret in SECRETS.values() if secret in line]
    return found


def assert_nothing_left(outcome: Outcome) -> None:
    """No process of the run, none of its ports, none of its temporary files."""
    assert processes_of(outcome.events) == [], outcome.explain()
    assert outcome.verdict["survivors"] == [], outcome.explain()
    config = json.loads((outcome.run_dir / "config.json").read_text())
    assert not Path(config["tmp_dir"]).exists(), outcome.explain()
    listening = {c.laddr[1] for c in psutil.net_connections("tcp") if c.laddr and c.status == psutil.CONN_LISTEN}
    assert listening.isdisjoint(config["ports"].values()), outcome.explain()
