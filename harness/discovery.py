"""RL worker discovery: the frontend's answer becomes a pinned topology, or a reason why not.

One record is one engine, not one rank. The order by (component, instance_id), and nothing in the order of the
answer, gives every engine its ranks. All decisions here are pure functions over a status and a body; `DiscoveryProbe`
asks the question for the poller and pins the topology once two consecutive snapshots are equal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

import httpx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.clock import Clock, Deadline
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.errors import DiscoveryError
from harness.fetching import BODY_LIMIT_BYTES, fetch
from harness.plaintext import printable
from harness.probes import Fatal, Outcome, Pending, Ready
from harness.strictjson import decode
from harness.topology import Expectation, Snapshot, Topology, Worker, describe_change, rank_offsets

PROTOCOL_VERSION = 1
ASK_AGAIN_S = 0.1
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
                Worker(w.component, str(w.instance_id), admin[i], system[i], expected.model, sizes[i], offset)
                for i, (w, offset) in enumerate(zip(records, rank_offsets(sizes), strict=True))
            )
        ),
        expected,
    )


def _judge_size(topology: Topology, expected: Expectation) -> Snapshot | Pending | Fatal:
    sizes = printable(str([w.world_size for w in topology.workers]))
    if topology.world_size > expected.world_size:
        return Fatal(f"too many ranks: expected {expected.world_size}, found {topology.world_size} in {sizes}")
    if topology.world_size < expected.world_size:
        return Pending(f"{topology.world_size} of {expected.world_size} ranks are there: {sizes}")
    return Snapshot(topology)


def _duplicates(what: str, values: Sequence[Hashable]) -> Fatal | None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    return Fatal(f"two workers share one {what}: {twice[0]}") if twice else None


@dataclass
class DiscoveryProbe:
    """Asks the discovery endpoint; Ready once two consecutive complete snapshots are equal.

    `topology` is None until then. Any other answer in between starts the count anew.
    """

    url: str
    expected: Expectation
    timeout_s: float = 5.0
    credentials: Credentials = NO_CREDENTIALS
    topology: Topology | None = field(default=None, init=False)
    _previous: Topology | None = field(default=None, init=False, repr=False)

    @property
    def what(self) -> str:
        return f"GET {self.url} with {self.expected.world_size} rank(s) of {self.expected.model}"

    def check(self) -> Outcome:
        found = self.ask()
        if not isinstance(found, Snapshot):
            self._previous = None
            return found
        previous, self._previous = self._previous, found.topology
        if previous is None or previous.fingerprint != found.topology.fingerprint:
            return Pending("one complete snapshot; waiting for an equal second one")
        self.topology = found.topology
        return Ready(f"{len(found.topology.workers)} worker(s), {found.topology.world_size} rank(s)")

    def ask(self) -> Snapshot | Pending | Fatal:
        """One request, classified. A transport error is Pending."""
        try:
            answer = fetch(self.url, headers=self.credentials.request_headers(), timeout_s=self.timeout_s)
        except httpx.TransportError as broken:
            return Pending(f"{type(broken).__name__}: {printable(str(broken))}")
        if answer.truncated:
            return Fatal(f"the answer is larger than {BODY_LIMIT_BYTES} bytes")
        found = classify(answer.status, self.credentials.conceal_bytes(answer.body), self.expected)
        refused = self.credentials.refusal(answer.status)
        return Fatal(f"{found.reason}; {refused}") if isinstance(found, Fatal) and refused is not None else found


class TopologySource(Protocol):
    """Who answers with the topology of now; `DiscoveryProbe` does."""

    @property
    def url(self) -> str: ...

    def ask(self) -> Snapshot | Pending | Fatal: ...


def complete_topology(
    source: TopologySource, *, deadline: Deadline, clock: Clock, alive: Callable[[], None]
) -> Topology:
    """Ask until the answer is complete; a slow or busy frontend is no change of the topology.

    `alive` is called before each further question. Raises DiscoveryError at the deadline, or when waiting cannot help.
    """
    while not isinstance(found := source.ask(), Snapshot):
        if isinstance(found, Fatal) or deadline.passed(clock):
            raise DiscoveryError(
                "the pinned topology is no longer served",
                expected=f"a complete answer within {deadline.granted_s:g} s",
                found=found.reason,
                where=source.url,
            )
        alive()
        clock.sleep(ASK_AGAIN_S)
    return found.topology


def require_same(pinned: Topology, found: Topology, url: str) -> None:
    """Raise DiscoveryError unless `found` is the pinned topology."""
    change = describe_change(pinned, found)
    if change is not None:
        raise DiscoveryError(
            "the topology changed under the run",
            expected=f"fingerprint {pinned.fingerprint}",
            found=f"fingerprint {found.fingerprint} ({change})",
            where=url,
            hint="a worker was replaced: read its log, then start a new run",
        )
