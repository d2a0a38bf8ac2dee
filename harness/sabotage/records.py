"""Changes the records in etcd by which Dynamo's frontend knows the engines, as a worker that comes and goes would.

Keys and values as Dynamo 1.6 writes them. The processes behind the records go on, and know nothing of the change.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from harness.errors import DoctorError
from harness.fetching import fetch

WORKERS = "v1/instances/"
MODELS = "v1/mdc/"
"""Which model a worker serves is in a record of its own."""

ASK_S = 5.0


def replace_instance(etcd_url: str) -> None:
    """Each worker is gone with its model, and another one with its addresses and its model is there, in one step."""
    changes: list[dict[str, Any]] = []
    for record in (*_below(WORKERS, etcd_url), *_below(MODELS, etcd_url)):
        value = json.loads(base64.b64decode(record["value"]))
        old, new = value["instance_id"], value["instance_id"] ^ 1
        key = base64.b64decode(record["key"]).decode().replace(f"{old:x}", f"{new:x}")
        put = {"key": _coded(key), "value": _coded(json.dumps({**value, "instance_id": new})), "lease": record["lease"]}
        changes += [{"requestDeleteRange": {"key": record["key"]}}, {"requestPut": put}]
    _ask(etcd_url, "txn", {"success": changes})


@contextmanager
def without_model(etcd_url: str) -> Iterator[None]:
    """Meanwhile no worker offers a model; then the records are there again as they were."""
    offered = _below(MODELS, etcd_url)
    _ask(etcd_url, "deleterange", _all_below(MODELS))
    try:
        yield
    finally:
        for record in offered:
            _ask(etcd_url, "put", {name: record[name] for name in ("key", "value", "lease")})


def _below(prefix: str, etcd_url: str) -> list[dict[str, Any]]:
    """The records there. None is an error: a sabotage without effect must not look like one that was not noticed."""
    found: list[dict[str, Any]] = _ask(etcd_url, "range", _all_below(prefix)).get("kvs", [])
    if not found:
        raise DoctorError(
            "the sabotage finds nothing to change", expected=f"a record below {prefix}", found="none", where=etcd_url
        )
    return found


def _all_below(prefix: str) -> dict[str, str]:
    """Keys from the prefix to the first one that comes after all that begin with it."""
    return {"key": _coded(prefix), "range_end": _coded(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _ask(etcd_url: str, what: str, body: object) -> dict[str, Any]:
    url = f"{etcd_url}/v3/kv/{what}"
    try:
        answer = fetch(url, method="POST", content=json.dumps(body).encode(), timeout_s=ASK_S)
    except httpx.TransportError as broken:
        raise DoctorError("the sabotage could not change etcd's records", found=str(broken), where=url) from broken
    if answer.status != 200:
        found = f"HTTP {answer.status}: {answer.body[:200].decode(errors='replace')}"
        raise DoctorError("the sabotage could not change etcd's records", found=found, where=url)
    decoded: dict[str, Any] = json.loads(answer.body)
    return decoded
