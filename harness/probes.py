"""Probes: small questions to a service, each answered Ready, Pending (ask again) or Fatal (never will be).

A probe does not wait and does not retry; `poller` does.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from harness.clock import Deadline, SteadyClock

PROBE_TIMEOUT_S = 2.0
BODY_LIMIT_BYTES = 1024 * 1024
_EXCERPT_CHARACTERS = 200
_CLOCK = SteadyClock()


@dataclass(frozen=True)
class Ready:
    """The answer is there; `detail` is for people."""

    detail: str = ""


@dataclass(frozen=True)
class Pending:
    """Not yet, for this reason."""

    reason: str


@dataclass(frozen=True)
class Fatal:
    """Never: waiting longer cannot help."""

    reason: str


Outcome = Ready | Pending | Fatal


class Probe(Protocol):
    """One question. `what` names it in messages, for example "engine-0 GET /health"."""

    @property
    def what(self) -> str: ...

    def check(self) -> Outcome: ...


@dataclass(frozen=True)
class HttpAnswer:
    """A status and at most `BODY_LIMIT_BYTES` of the body; `truncated` when there was more."""

    status: int
    body: bytes
    truncated: bool = False

    def excerpt(self) -> str:
        """The body's beginning on one line, for messages."""
        text = self.body[: 4 * _EXCERPT_CHARACTERS].decode("utf-8", errors="replace")
        line = " ".join(text.split())
        return line if len(line) <= _EXCERPT_CHARACTERS else line[:_EXCERPT_CHARACTERS] + "…"


def fetch(
    url: str,
    *,
    method: str = "GET",
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = PROBE_TIMEOUT_S,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> HttpAnswer:
    """Ask once, straight (no proxy, no redirect followed), for at most `limit_bytes` of body.

    `timeout_s` bounds each wait (to connect, to send, for the next bytes) and, once the body has begun, the time since
    the start: a body that trickles is given up, a server that is slow in several ways may take a few times as long.
    Raises `httpx.TransportError`, of which `httpx.ReadTimeout` also means a body that trickled in too slowly.
    """
    deadline = Deadline.after(_CLOCK, timeout_s)
    body = bytearray()
    # A bare TLS context costs nothing to make; the default one loads every CA of the system at each poll.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with (
        httpx.Client(trust_env=False, follow_redirects=False, timeout=timeout_s, verify=tls) as client,
        client.stream(
            method, url, content=content, headers={"Accept-Encoding": "identity", **(headers or {})}
        ) as response,
    ):
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > limit_bytes:
                return HttpAnswer(response.status_code, bytes(body[:limit_bytes]), truncated=True)
            if deadline.passed(_CLOCK):
                raise httpx.ReadTimeout(f"the answer's body was not complete after {timeout_s:g} s")
        return HttpAnswer(response.status_code, bytes(body))


def any_answer(_answer: HttpAnswer) -> Outcome:
    """The judge that asks for nothing but the expected status."""
    return Ready()


@dataclass(frozen=True)
class HttpProbe:
    """Ready when `url` answers with status `expect` and `judge` accepts the answer.

    An unreachable server and every other status are pending, since a server that is starting answers with any of them;
    statuses in `fatal` end the wait.
    """

    what: str
    url: str
    expect: int = 200
    fatal: frozenset[int] = frozenset()
    judge: Callable[[HttpAnswer], Outcome] = any_answer
    method: str = "GET"
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = PROBE_TIMEOUT_S

    def check(self) -> Outcome:
        try:
            answer = fetch(
                self.url, method=self.method, content=self.content, headers=self.headers, timeout_s=self.timeout_s
            )
        except httpx.TransportError as error:
            return Pending(f"{self.url}: {_transport_reason(error)}")
        if answer.status == self.expect:
            return self.judge(answer)
        reason = f"{self.url} answered {answer.status}, not {self.expect}: {answer.excerpt() or '(empty body)'}"
        return Fatal(reason) if answer.status in self.fatal else Pending(reason)


@dataclass(frozen=True)
class JsonProbe:
    """Ready when `url` answers 200 with a JSON document that `judge` accepts; a body that is no JSON is pending."""

    what: str
    url: str
    judge: Callable[[object], Outcome]
    fatal: frozenset[int] = frozenset()
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = PROBE_TIMEOUT_S

    def check(self) -> Outcome:
        return HttpProbe(
            self.what,
            self.url,
            fatal=self.fatal,
            judge=self._judge_body,
            headers=self.headers,
            timeout_s=self.timeout_s,
        ).check()

    def _judge_body(self, answer: HttpAnswer) -> Outcome:
        if answer.truncated:
            return Fatal(f"{self.url} answered with more than {BODY_LIMIT_BYTES} bytes")
        try:
            document: object = json.loads(answer.body)
        except ValueError as error:
            return Pending(f"{self.url} answered with something that is not JSON ({error}): {answer.excerpt()}")
        return self.judge(document)


@dataclass(frozen=True)
class TcpProbe:
    """Ready when something accepts a connection at `host`:`port`. It proves a listener, not a healthy service."""

    what: str
    host: str
    port: int
    timeout_s: float = PROBE_TIMEOUT_S

    def check(self) -> Outcome:
        try:
            with socket.create_connection((self.host, self.port), timeout=self.timeout_s):
                return Ready(f"{self.host}:{self.port} accepts connections")
        except OSError as error:
            return Pending(f"{self.host}:{self.port}: {error.strerror or error}")


def _transport_reason(error: httpx.TransportError) -> str:
    """What went wrong below HTTP, with the exception's name when it carries no text (timeouts often do not)."""
    return str(error) or type(error).__name__
