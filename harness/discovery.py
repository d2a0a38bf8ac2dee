"""RL worker discovery: asks the frontend until its workers are a pinned topology, and whether they still are.

`DiscoveryProbe` asks for the poller and pins the topology once two consecutive snapshots are equal. What an answer
means is decided in `workers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from harness.clock import Clock, Deadline
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.errors import DiscoveryError
from harness.fetching import BODY_LIMIT_BYTES, fetch
from harness.plaintext import printable
from harness.probes import Fatal, Outcome, Pending, Ready
from harness.topology import Expectation, Snapshot, Topology, describe_change
from harness.workers import classify

ASK_AGAIN_S = 0.1


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
