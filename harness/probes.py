"""Probes: small questions to a service, each answered Ready, Pending (ask again) or Fatal (never will be).

A probe does not wait and does not retry; `poller` does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import httpx

from harness.credentials import NO_CREDENTIALS, Credentials
from harness.fetching import BODY_LIMIT_BYTES, EXCERPT_CHARACTERS, HttpAnswer, fetch
from harness.plaintext import printable
from harness.strictjson import decode

PROBE_TIMEOUT_S = 2.0


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


def any_answer(_answer: HttpAnswer) -> Outcome:
    """The judge that asks for nothing but the expected status."""
    return Ready()


@dataclass(frozen=True)
class HttpProbe:
    """Ready when `url` answers with status `expect` and `judge` accepts the answer.

    An unreachable server and every other status are pending, since a server that is starting answers with any of them;
    statuses in `fatal` end the wait, and so does a server that does not accept our key.
    """

    what: str
    url: str
    expect: int = 200
    fatal: frozenset[int] = frozenset()
    judge: Callable[[HttpAnswer], Outcome] = any_answer
    method: str = "GET"
    content: bytes | None = None
    credentials: Credentials = NO_CREDENTIALS
    timeout_s: float = PROBE_TIMEOUT_S

    def check(self) -> Outcome:
        try:
            answer = fetch(
                self.url,
                method=self.method,
                content=self.content,
                headers=self.credentials.request_headers(),
                timeout_s=self.timeout_s,
            )
        except httpx.TransportError as error:
            return Pending(f"{self.url}: {_transport_reason(error)}")
        if answer.status == self.expect:
            return self.judge(answer)
        excerpt = self.credentials.shown(answer.body, EXCERPT_CHARACTERS) or "(empty body)"
        reason = f"{self.url} answered {answer.status}, not {self.expect}: {excerpt}"
        refused = self.credentials.refusal(answer.status)
        if refused is not None:
            return Fatal(f"{reason}; {refused}")
        return Fatal(reason) if answer.status in self.fatal else Pending(reason)


@dataclass(frozen=True)
class JsonProbe:
    """Ready when `url` answers 200 with a JSON document that `judge` accepts; a body that is no JSON is pending."""

    what: str
    url: str
    judge: Callable[[object], Outcome]
    fatal: frozenset[int] = frozenset()
    credentials: Credentials = NO_CREDENTIALS
    timeout_s: float = PROBE_TIMEOUT_S

    def check(self) -> Outcome:
        return HttpProbe(
            self.what,
            self.url,
            fatal=self.fatal,
            judge=self._judge_body,
            credentials=self.credentials,
            timeout_s=self.timeout_s,
        ).check()

    def _judge_body(self, answer: HttpAnswer) -> Outcome:
        if answer.truncated:
            return Fatal(f"{self.url} answered with more than {BODY_LIMIT_BYTES} bytes")
        try:
            document = decode(answer.body)
        except ValueError as error:
            found = self.credentials.shown(answer.body, EXCERPT_CHARACTERS)
            return Pending(f"{self.url} answered with something that is not JSON ({printable(str(error))}): {found}")
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
