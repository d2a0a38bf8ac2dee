"""What the answer of RL worker discovery means: a complete topology, a reason to ask again, or a reason to give up.

One record is one engine, not one rank. The order by (component, instance_id), and nothing in the order of the answer,
gives every engine its ranks. Pure functions over a status and a body.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Annotated, Literal

import httpx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.plaintext import printable
from harness.probes import Fatal, Pending
from harness.strictjson import decode
from harness.topology import Expectation, Snapshot, Topology, Worker, rank_offsets

PROTOCOL_VERSION = 1
MAX_WORKERS, MAX_RANKS, MAX_ROUTES = 4096, 4096, 256
"""Far above any run of one frontend, and small enough to be added up and written down."""

_TRANSIENT_CLIENT_ERRORS = frozenset({408, 429})


def _visible(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_visible)]
Url = Annotated[str, Field(max_length=2048), AfterValidator(_visible)]
"""What is recorded, compared and shown of a worker: of a size and kind that can be."""


class WorkerRecord(BaseModel):
    """One worker as served. Newer servers may add fields, so unknown ones are kept out rather than refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    component: Name
    instance_id: Annotated[int, Field(ge=0, lt=2**64)] | Name
    namespace: Name | None = None
    endpoint: Name | None = None
    transport: object = None
    system_url: Url | None = None
    admin_base_url: Url | None = None
    model: Name | None = None
    routes: list[Name] = Field(default_factory=list, max_length=MAX_ROUTES)
    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS)] | None = None
    error: object = None


class WorkersAnswer(BaseModel):
    """The body of `GET /v1/rl/workers`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    protocol_version: Literal[1]
    namespace: Name | None = None
    workers: list[WorkerRecord] = Field(max_length=MAX_WORKERS)


def normalise_url(url: str) -> str:
    """Base URL without trailing slashes and without a final `/v1`; raises ValueError when it is not http(s)."""
    parsed = httpx.URL(url.strip())
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"not an absolute http(s) URL: {printable(url)!r}")
    if parsed.port is not None and not 1 <= parsed.port <= 65535:
        raise ValueError(f"a port that is none: {parsed.port}")
    if parsed.userinfo:
        raise ValueError(f"a URL that carries a user's name: host {printable(parsed.host)!r}")
    text = str(parsed.copy_with(query=None, fragment=None)).rstrip("/")
    return text.removesuffix("/v1").rstrip("/")


def classify(status: int, body: bytes, expected: Expectation) -> Snapshot | Pending | Fatal:
    """Decide on one answer of the discovery endpoint."""
    if status in _TRANSIENT_CLIENT_ERRORS or status >= 500:
        return Pending(f"HTTP {status}: {printable(body)}")
    if status != 200:
        return Fatal(f"HTTP {status}: {printable(body)}")
    answer = _parse(body)
    if isinstance(answer, Fatal):
        return answer
    return _classify_workers([w for w in answer.workers if w.model in {expected.model, None}], expected)


def _parse(body: bytes) -> WorkersAnswer | Fatal:
    try:
        document = decode(body)
    except ValueError as broken:
        return Fatal(f"the answer is not JSON ({printable(str(broken))}): {printable(body)}")
    if not isinstance(document, dict):
        return Fatal(f"the answer is not a JSON object: {printable(body)}")
    version = document.get("protocol_version")
    if type(version) is not int or version != PROTOCOL_VERSION:
        return Fatal(
            f"protocol_version must be the integer {PROTOCOL_VERSION}, found {printable(json.dumps(version), 80)}"
        )
    try:
        return WorkersAnswer.model_validate_json(body)
    except ValidationError as invalid:
        return Fatal(f"the answer breaks protocol version {PROTOCOL_VERSION}: {_first_problem(invalid)}")


def _first_problem(invalid: ValidationError) -> str:
    problem = invalid.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(printable(str(part), 80) for part in problem['loc'])}: {problem['msg']}"


def _classify_workers(records: Sequence[WorkerRecord], expected: Expectation) -> Snapshot | Pending | Fatal:
    """Duplicates are judged over all records of the model, also over those that are not usable yet."""
    repeated = _duplicates("(component, instance_id)", [(w.component, str(w.instance_id)) for w in records])
    if repeated is not None:
        return repeated
    failed = [w for w in records if w.error]
    if failed:
        return Pending(
            f"worker {failed[0].component}/{failed[0].instance_id} reports: {printable(str(failed[0].error))}"
        )
    named = [w for w in records if w.model == expected.model]
    if not named:
        return Pending(f"no worker serves {expected.model!r} yet")
    return _resolve(sorted(named, key=lambda w: (w.component, _instance_order(w.instance_id))), expected)


def _instance_order(instance_id: int | str) -> tuple[int, int, str]:
    """Numbers by value and before names, so that 9 comes before 10 in every answer."""
    if isinstance(instance_id, int):
        return (0, instance_id, "")
    return (1, 0, instance_id)


def _resolve(records: Sequence[WorkerRecord], expected: Expectation) -> Snapshot | Pending | Fatal:
    incomplete = next((w for w in records if None in {w.admin_base_url, w.system_url, w.world_size}), None)
    if incomplete is not None:
        return Pending(
            f"worker {incomplete.component}/{incomplete.instance_id} has not published its URLs and world size"
        )
    try:
        admin = [normalise_url(w.admin_base_url or "") for w in records]
        system = [normalise_url(w.system_url or "") for w in records]
    except (ValueError, httpx.InvalidURL) as bad:
        return Fatal(f"unusable worker URL: {printable(str(bad))}")
    repeated = _duplicates("admin URL", admin) or _duplicates("system URL", system)
    if repeated is not None:
        return repeated
    if len({frozenset(w.routes) for w in records}) > 1:
        listing = "; ".join(f"{w.component}/{w.instance_id}: {', '.join(sorted(w.routes))}" for w in records)
        return Fatal(f"workers with mixed capabilities: {printable(listing)}")
    sizes = [w.world_size or 0 for w in records]
    return _judge_size(
        Topology(
            tuple(
                Worker(
                    w.component,
                    str(w.instance_id),
                    admin[i],
                    system[i],
                    expected.model,
                    sizes[i],
                    offset,
                    tuple(sorted(w.routes)),
                )
                for i, (w, offset) in enumerate(zip(records, rank_offsets(sizes), strict=True))
            )
        ),
        expected,
    )


def _judge_size(topology: Topology, expected: Expectation) -> Snapshot | Pending | Fatal:
    for worker in topology.workers:
        own = expected.engines.get(worker.admin_url)
        if own is not None and own.ranks != worker.world_size:
            return Fatal(f"{own.name} has world size {worker.world_size}, configured with {own.ranks}")
    sizes = printable(str([w.world_size for w in topology.workers]))
    if topology.world_size > expected.world_size:
        return Fatal(f"too many ranks: expected {expected.world_size}, found {topology.world_size} in {sizes}")
    if topology.world_size < expected.world_size:
        return Pending(f"{topology.world_size} of {expected.world_size} ranks are there: {sizes}")
    return Snapshot(topology)


def _duplicates(what: str, values: Sequence[Hashable]) -> Fatal | None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    return Fatal(f"two workers share one {what}: {twice[0]}") if twice else None
