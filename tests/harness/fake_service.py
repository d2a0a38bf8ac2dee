"""A program that answers as etcd, the engine, the frontend or a sidecar would, far enough to bring a stack up.

Called as `fake_service.py {etcd|vllm-rs|python} <the real program's arguments>` in the run's scratch folder. Files
there change its ways: `die-<service>` makes it end at once; `foreign-worker` adds a stranger's engine to discovery;
`hidden-worker` leaves all but one out; while `paused` is there every engine says that it is paused.
`replaced-worker` gives a worker another instance id; `busy-discovery` answers nothing while it is there.
`lease-<id>` is a lease that etcd tells of. `GET /spawn` of the engine starts one more inner process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

RECORDS = Path("workers")


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def serve(port: int, answers: dict[str, object]) -> threading.Thread:
    """Answer each path with its JSON document, or with what its function returns."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            answer = answers.get(path)
            body = json.dumps(answer() if callable(answer) else answer).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *args: object) -> None:
            pass

    thread = threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever)
    thread.start()
    return thread


def etcd() -> None:
    def leases() -> dict[str, object]:
        return {"leases": [{"ID": path.name.removeprefix("lease-")} for path in Path().glob("lease-*")]}

    answers = {"/health": {"health": "true"}, "/v3/lease/leases": leases}
    serve(int(option("--listen-client-urls").rpartition(":")[2]), answers)


def engine() -> None:
    core = inner_process()
    Path(f"core-{option('--port')}").write_text(str(core.pid))
    serve(int(option("--grpc-port")), {})
    models = {"data": [{"id": option("--served-model-name")}]}
    answers = {
        "/health": {},
        "/v1/models": models,
        "/spawn": lambda: inner_process().pid,
        "/is_paused": lambda: {"is_paused": Path("paused").exists()},
    }
    serve(int(option("--port")), answers)


def inner_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], process_group=0)


def sidecar() -> None:
    port = int(os.environ["DYN_SYSTEM_PORT"])
    serve(port, {"/health": {"status": "ready"}})
    RECORDS.mkdir(exist_ok=True)
    record = {
        "component": os.environ.get("DYN_COMPONENT", "backend"),
        "instance_id": port,
        "system_url": f"http://127.0.0.1:{port}",
        "admin_base_url": option("--vllm-http-endpoint") + "/",
        "model": "tiny",
        "routes": ["control/is_paused"],
        "world_size": 1,
    }
    (RECORDS / f"{port}.part").write_text(json.dumps(record))
    (RECORDS / f"{port}.part").rename(RECORDS / f"{port}.json")


def frontend() -> None:
    def records() -> list[dict[str, object]]:
        found = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
        if Path("foreign-worker").exists() and found:
            found[0]["admin_base_url"] = "http://127.0.0.1:9/"
        if Path("replaced-worker").exists() and found:
            found[0]["instance_id"] = 77
        return found[:1] if Path("hidden-worker").exists() else found

    def workers() -> dict[str, object]:
        if Path("busy-discovery").exists():
            return {"protocol_version": 1, "namespace": "dynamo", "workers": []}
        return {"protocol_version": 1, "namespace": "dynamo", "workers": records()}

    def models() -> dict[str, object]:
        return {"data": [{"id": "tiny"}] if records() else []}

    serve(int(os.environ["DYN_RL_PORT"]), {"/v1/rl/workers": workers})
    serve(int(option("--http-port")), {"/health": {}, "/v1/models": models})


def main() -> None:
    program = sys.argv[1]
    if program == "python":
        program = option("-m")
    services = {"etcd": etcd, "vllm-rs": engine, "dynamo.frontend": frontend, "dynamo.vllm.sidecar": sidecar}
    if Path(f"die-{program}").exists():
        raise SystemExit(f"{program} was told to end")
    services[program]()


if __name__ == "__main__":
    main()
