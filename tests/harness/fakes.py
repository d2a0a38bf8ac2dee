"""Loopback fakes: the answers of the stack's servers as data, and a whole stack of tiny programs."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.config import Deadlines, RunConfig
from harness.manifest import Manifest
from harness.services.context import ServiceContext

ROUTES = ["control/get_weight_version", "control/is_paused", "update/update_weight_version"]
PROGRAM = Path(__file__).with_name("fake_service.py")


def worker(index: int, **changes: Any) -> dict[str, Any]:
    """One discovery record as Dynamo 1.6 serves it; None in `changes` leaves the field out."""
    record = {
        "namespace": "dynamo",
        "component": "backend",
        "endpoint": "rl",
        "instance_id": index + 1,
        "transport": {"tcp": f"127.0.0.1:4000{index}/dynamo/backend/rl"},
        "request_plane_url": "dyn://dynamo.backend.rl",
        "system_url": f"http://127.0.0.1:{8081 + index}",
        "admin_base_url": f"http://127.0.0.1:{8002 + index}/",
        "model": "tiny",
        "routes": ROUTES,
        "world_size": 1,
        **changes,
    }
    return {name: value for name, value in record.items() if value is not None}


def workers_answer(workers: Sequence[dict[str, Any]], **changes: Any) -> bytes:
    """The body of `GET /v1/rl/workers`."""
    return json.dumps({"protocol_version": 1, "namespace": "dynamo", "workers": list(workers), **changes}).encode()


def manifest_fields(**changes: Any) -> dict[str, Any]:
    """A valid manifest, as the build plane writes it."""
    return {
        "schema": 1,
        "stack": "cpu",
        "summary": "a stack for tests",
        "platform": "cpu",
        "python": "3.11",
        "dialect": "dynamo-1.6",
        "refit_backend": "gloo",
        "planes": {"discovery": "etcd", "request": "tcp", "event": "zmq"},
        "inputs": "a" * 64,
        "environment": ".venv-cpu",
        "lock": {"path": "stacks/cpu/requirements.lock", "sha256": "b" * 64},
        "artifacts": [],
        "binaries": {},
        "packages": {},
        **changes,
    }


def context(
    root: Path,
    *,
    ports: dict[str, int],
    engines: int = 1,
    dialect: str = "dynamo-1.6",
    caller: dict[str, str] | None = None,
    **changes: Any,
) -> ServiceContext:
    """What services are specified from, with everything below `root`."""
    for folder in ("run/logs", "tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "run_id": f"test-{uuid.uuid4().hex[:8]}",
        "run_dir": root / "run",
        "project_root": root,
        "stack": "cpu",
        "platform": "cpu",
        "environment": root / ".venv-cpu",
        "model": "tiny",
        "model_dir": root / "model",
        "served_model_name": "tiny",
        "starts_untrained": True,
        "steps": 1,
        "ports": ports,
        "tmp_dir": root / "tmp",
        "tensor_parallel": (1,) * engines,
        "deadlines": Deadlines(
            etcd_s=10, engine_s=10, frontend_s=10, sidecar_s=10, discovery_s=10, request_s=5, stop_grace_s=5
        ),
        **changes,
    }
    around = {"PATH": "/usr/bin:/bin", "HOME": "/home/somebody", "HTTP_PROXY": "http://nowhere", "DYN_SYSTEM_PORT": "x"}
    manifest = manifest_fields(dialect=dialect, platform=settings["platform"])
    return ServiceContext(RunConfig(**settings), Manifest.model_validate(manifest), {**around, **(caller or {})})


def make_environment(folder: Path) -> None:
    """An environment whose programs are `fake_service`, called as the real ones are."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("etcd", "vllm-rs", "python"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{PROGRAM}" {name} "$@"\n')
        program.chmod(0o755)
