"""Brings a real run to a phase, and finds the processes of that run by what the run itself wrote down.

Every signal goes to a process that the run started: a service's leader by its pid in `events.jsonl`, an inner process
by its descent from such a leader. Titles only tell the descendants of one leader apart.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

from harness.eventlog import EVENTS_FILE
from smoke.runner import Command, wait_until

Phase = Literal["starting", "idle", "rollouts", "refit"]
PHASES: tuple[Phase, ...] = ("starting", "idle", "rollouts", "refit")
STEPS = 200
"""More than any test waits for: a fault strikes a run that would go on."""

CYCLE = {"observed", "step", "refit"}
CORE_TITLE = "VLLM::EngineCore"
RUNNING = re.compile(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([0-9.]+)$", re.MULTILINE)


@dataclass
class Stage:
    """A run under way. `held` is the trainer's process while a test keeps it stopped."""

    run: Command
    held: psutil.Process | None = None
    _events: list[dict[str, Any]] = field(default_factory=list)
    _read: int = 0

    @classmethod
    def of(cls, run_dir: Path, *options: str) -> Stage:
        return cls(Command("smoke", *options, run_dir=run_dir))

    def seen(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        events = [event for event in self.events() if event["kind"] == kind]
        return [event for event in events if fields.items() <= event.items()]

    def events(self) -> list[dict[str, Any]]:
        """All so far. Each line is parsed once: this is asked all the time, on cores that the run needs."""
        path = self.run.run_dir / EVENTS_FILE
        if path.is_file():
            with path.open("rb") as stream:
                stream.seek(self._read)
                whole, end, _ = stream.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self._events += [json.loads(line) for line in whole.splitlines()]
        return self._events

    def wait_for(self, kind: str, seconds: float = 240.0, **fields: Any) -> dict[str, Any]:
        """The first such event. A run that ends before it is no run to try anything on."""

        def there() -> bool:
            if self.seen(kind, **fields):
                return True
            assert self.run.process.poll() is None, self.run.wait(10).explain()
            return False

        wait_until(there, f"{kind} {fields or ''}", seconds)
        return self.seen(kind, **fields)[0]

    def leader(self, service: str) -> psutil.Process:
        """The service's own process."""
        return psutil.Process(self.wait_for("service.started", service=service)["pid"])

    def core(self) -> psutil.Process:
        """The process in which the engine schedules and computes, somewhere below its leader."""
        leader = self.leader("engine-0")
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = [one for one in leader.children(recursive=True) if _title(one).startswith(CORE_TITLE)]
            return bool(found)

        wait_until(there, "the engine's core process", 120)
        return found[0]

    def url(self, port: str) -> str:
        config = json.loads((self.run.run_dir / "config.json").read_text())
        return f"http://{config['host']}:{config['ports'][port]}"

    def ask(self, method: str, port: str, path: str, **options: Any) -> httpx.Response:
        return httpx.request(method, self.url(port) + path, trust_env=False, timeout=10, **options)

    def paused(self) -> bool:
        return bool(self.ask("GET", "engine-0", "/is_paused").json()["is_paused"])

    def requests_open(self) -> float:
        """Requests that the engine computes or has in its queue."""
        found = RUNNING.findall(self.ask("GET", "engine-0", "/metrics").text)
        assert found, "the engine's metrics count its requests"
        return sum(map(float, found))

    def reach(self, phase: Phase) -> None:
        """Bring the run there. In `idle` and `refit` the trainer is held, so that the phase lasts: see `let_go`."""
        if phase == "starting":
            self.core()
            assert not self.seen("service.ready", service="engine-0"), "the engine was ready too soon to be caught"
            return
        self.wait_for("observed", version=1)
        if phase == "rollouts":
            self._await_rollouts()
        elif phase == "refit":
            self._hold_trainer(self.paused)
        else:
            self._hold_trainer(lambda: not self.paused())
            wait_until(lambda: self.requests_open() == 0, "the end of what the engine had to do", 30)

    def _await_rollouts(self) -> None:
        """The trainer samples from the moment it may continue after a version's observation until its next step."""

        def sampling() -> bool:
            kinds = [str(event["kind"]) for event in self.events() if event["kind"] in CYCLE]
            return kinds[-1] == "observed"

        known = len(self.seen("observed"))
        wait_until(lambda: len(self.seen("observed")) > known and sampling(), "rollouts in flight", 60)
        # Only now is the trainer told to continue: its first requests take a moment.
        time.sleep(0.03)

    def _hold_trainer(self, wanted: Callable[[], bool]) -> None:
        """Stop the trainer in a moment in which `wanted` is true, and stays so."""
        trainer = self.leader("trainer")

        def caught() -> bool:
            if not wanted():
                return False
            trainer.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
            try:
                stays = wanted()
            except httpx.ReadTimeout:
                # It was caught in the middle of a transfer: the engine waits for it, and answers nobody.
                stays = False
            if not stays:
                trainer.send_signal(signal.SIGCONT)
            return stays

        wait_until(caught, "the trainer in the wanted moment", 60)
        self.held = trainer

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """The harness stands still: what happens meanwhile it has not seen, and what fails stays as it is."""
        self.run.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.run.send(signal.SIGCONT)

    def let_go(self) -> None:
        """Let a held trainer go on, as it would have."""
        if self.held is not None:
            self.held.send_signal(signal.SIGCONT)
            self.held = None

    def still_running(self) -> bool:
        return self.run.process.poll() is None

    def failure_seen(self, seconds: float) -> float:
        """Wait until the run has recorded why it ends; returns the seconds since this was called."""
        began = time.monotonic()
        wait_until(lambda: bool(self.seen("failure")), "the run to notice", seconds)
        return time.monotonic() - began

    def end(self) -> None:
        """For a test that failed half-way: ask the run to end, and let it."""
        self.let_go()
        if self.run.process.returncode is None:
            self.run.send(signal.SIGCONT)
            self.run.send(signal.SIGTERM)
            self.run.wait(90)


@dataclass(frozen=True)
class Replica:
    """What is needed to start a service once more, as a supervisor would: read while it still runs."""

    argv: list[str]
    env: dict[str, str]
    cwd: str

    @classmethod
    def of(cls, process: psutil.Process) -> Replica:
        return cls(process.cmdline(), process.environ(), process.cwd())

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """It bears the run's mark, as its original does: it is the run's to end."""
        with log.open("ab") as out:
            return subprocess.Popen(
                self.argv,
                env=self.env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


def has_ended(process: psutil.Process) -> bool:
    """Also while nobody has asked for its exit status yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill_tree(leader: psutil.Process) -> None:
    """SIGKILL to a service's leader and all that descends from it. The leader starts nothing meanwhile."""
    leader.suspend()
    for process in [leader, *leader.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
