"""One HTTP question: straight to whom it is for, and bounded in bytes and in seconds, whatever the other side does."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

BODY_LIMIT_BYTES = 1024 * 1024
EXCERPT_CHARACTERS = 200


@dataclass(frozen=True)
class HttpAnswer:
    """A status and at most the permitted bytes of the body; `truncated` when there was more."""

    status: int
    body: bytes
    truncated: bool = False


def fetch(
    url: str,
    *,
    method: str = "GET",
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float,
    limit_bytes: int = BODY_LIMIT_BYTES,
) -> HttpAnswer:
    """Ask once: no proxy, no redirect followed, no compression undone, at most `limit_bytes` of body.

    `timeout_s` bounds the connecting, and everything together: a peer that trickles its headers or its body is cut off.
    Raises `httpx.TransportError`, of which `httpx.ReadTimeout` means that the answer was not complete in time.
    """
    body = bytearray()
    with streamed(url, method=method, content=content, headers=headers, timeout_s=timeout_s) as (status, chunks):
        for chunk in chunks:
            body += chunk
            if len(body) > limit_bytes:
                return HttpAnswer(status, bytes(body[:limit_bytes]), truncated=True)
        return HttpAnswer(status, bytes(body))


@contextmanager
def streamed(
    url: str,
    *,
    method: str = "GET",
    content: bytes | Iterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float,
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The same with the body piece by piece, as it comes: whoever reads it bounds its size."""
    # A bare TLS context costs nothing to make; the default one loads every CA of the system at each poll.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with (
        _time_limit(timeout_s) as limit,
        httpx.Client(trust_env=False, follow_redirects=False, timeout=timeout_s, verify=tls) as client,
        client.stream(
            method,
            url,
            content=content,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            extensions={"trace": limit.trace},
        ) as response,
    ):
        yield response.status_code, limit.during(response.iter_raw())


@dataclass
class _TimeLimit:
    """Cuts the connection when the time is up: no other bound reaches a peer that sends a byte now and then."""

    seconds: float
    expired: bool = field(default=False, init=False)
    _sockets: list[socket.socket] = field(default_factory=list, init=False)

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """httpcore's account of a request: the new connection's socket is in it."""
        if name.endswith((".connect_tcp.complete", ".start_tls.complete")):
            connected = info["return_value"].get_extra_info("socket")
            if isinstance(connected, socket.socket):
                self._sockets.append(connected)
            if self.expired:
                self.cut()

    def cut(self) -> None:
        self.expired = True
        for connected in self._sockets:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def require_time_left(self) -> None:
        if self.expired:
            raise self.late()

    def during(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self.require_time_left()

    def late(self) -> httpx.ReadTimeout:
        return httpx.ReadTimeout(f"the answer was not complete after {self.seconds:g} s")


@contextmanager
def _time_limit(seconds: float) -> Iterator[_TimeLimit]:
    limit = _TimeLimit(seconds)
    timer = threading.Timer(seconds, limit.cut)
    timer.daemon = True
    timer.start()
    try:
        yield limit
        # A body whose end is the end of the connection looks whole when it was cut.
        limit.require_time_left()
    except httpx.ReadTimeout as silent:
        raise limit.late() from silent
    except httpx.TransportError:
        # What broke may have been broken from here.
        limit.require_time_left()
        raise
    finally:
        timer.cancel()
