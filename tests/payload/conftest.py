"""Fakes for the payload's tests: engines that answer the admin routes, and small pieces everybody needs.

These tests run inside the stack's environment (torch and vLLM are real); they import nothing of the harness.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# As in the engine. vLLM's layers call the compiler when they are imported, which is slow and warns.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import pytest
from smokestack_payload.settings import EngineAddress, GrpoSettings, Plan, TrainerSettings

pytest_plugins = ["nccl_peers"]
Answer = tuple[int, Any]
STEPS = 2
"""Of a run; the last version has this number."""


@dataclass
class FakeEngine:
    """An HTTP server on loopback that records every call and answers success, unless told otherwise by `on`."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    handlers: dict[str, Callable[[Any], Answer]] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                parsed = json.loads(body) if body else None
                path, _, query = self.path.partition("?")
                engine.queries.append(query)
                engine.calls.append((path, parsed))
                status, answer = engine.handlers.get(path, lambda _: (200, {"success": True}))(parsed)
                text = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except (BrokenPipeError, ConnectionResetError):
                    return  # the caller gave up: that is what some tests are about

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]

    def on(self, path: str, answer: Callable[[Any], Answer]) -> None:
        self.handlers[path] = answer

    def fail(self, path: str, status: int, text: str) -> None:
        self.on(path, lambda _: (status, {"error": {"message": text}}))

    def hang(self, path: str) -> None:
        """Do not answer until the test is over."""

        def wait(_: Any) -> Answer:
            self.released.wait(timeout=30)
            return 200, {}

        self.on(path, wait)

    def address(self, rank_offset: int = 1) -> EngineAddress:
        return EngineAddress(self.url, world_size=1, rank_offset=rank_offset)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def make_engine() -> Iterator[Callable[[], FakeEngine]]:
    engines: list[FakeEngine] = []

    def make() -> FakeEngine:
        engines.append(FakeEngine())
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def grpo(**changes: Any) -> GrpoSettings:
    """Hyperparameters for tests."""
    values = {
        "prompts_per_step": 2,
        "group_size": 2,
        "max_new_tokens": 4,
        "temperature": 1.0,
        "learning_rate": 1e-3,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "seed": 20260,
    }
    return GrpoSettings(**{**values, **changes})


def configured(model_dir: Path, **changes: Any) -> dict[str, Any]:
    """The trainer's configuration as the harness writes it."""
    return {
        "model_dir": str(model_dir),
        "warm_cache": None,
        "device": "cpu",
        "steps": STEPS,
        "seed": 1,
        "bucket_bytes": 200_000,
        "grpo": asdict(grpo()),
        "deadlines": {"request_s": 10, "rendezvous_s": 20, "refit_s": 20, "step_s": 60},
        "refit": "native",
        "backend": "gloo",
        "transfer": "trainer-engine",
        "rendezvous": "tcp",
        "packing": {"packed": True, "buffer_bytes": 1 << 20, "buffers": 2},
        "engine_label": True,
        "checkpoints": str(model_dir / "checkpoints"),
        "adapter": None,
        "precision": "float32",
        "probe_new_tokens": 4,
        **changes,
    }


def settings(name: str | None) -> TrainerSettings:
    """Of a trainer with this sabotage; nothing is loaded by them."""
    return TrainerSettings.parse(configured(Path("nowhere"), sabotage=name))


def plan(engine: FakeEngine) -> Plan:
    """Of a run with one engine. Nobody is at its frontend's and its master's address."""
    return Plan("http://127.0.0.1:1", "tiny", (engine.address(1),), 2, "127.0.0.1", 7)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
