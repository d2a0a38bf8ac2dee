"""A peer that says whatever a test wants, byte by byte, whatever it was asked.

For the tests of both environments, the tool's and the stack's: imports the standard library only.
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Write = Callable[[bytes], object]
Talk = Callable[[Write], None]

BYTES_OF_A_TRICKLE = 500
PAUSE_S = 0.02


@contextmanager
def peer(talk: Talk) -> Iterator[str]:
    """Serve on loopback while the block lasts; yields the base URL."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            try:
                talk(self.wfile.write)
            except (BrokenPipeError, ConnectionResetError):
                return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def saying(body: bytes, *, status: str = "200 OK", content_type: str = "application/json", more: str = "") -> Talk:
    """A whole answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return lambda write: _all(write, head.encode() + body)


def saying_json(document: Any, **options: Any) -> Talk:
    return saying(json.dumps(document).encode(), **options)


def endless(write: Write) -> None:
    """A body that never ends."""
    write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        write(b" " * 65536)


def endless_chunks(write: Write) -> None:
    write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        write(b"10000\r\n" + b" " * 65536 + b"\r\n")


def trickled_body(write: Write) -> None:
    """One byte now and then, each well within any time-out of its own."""
    write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    _trickle(write, b" ")


def trickled_body_to_the_end_of_the_connection(write: Write) -> None:
    write(b"HTTP/1.1 200 OK\r\n\r\n{}")
    _trickle(write, b" ")


def trickled_head(write: Write) -> None:
    write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    _trickle(write, b"x")


def endless_head(write: Write) -> None:
    write(b"HTTP/1.1 200 OK\r\n")
    while True:
        write(b"X-More: " + b"x" * 8192 + b"\r\n")


def interim_answers(write: Write) -> None:
    """Never the answer itself."""
    _trickle(write, b"HTTP/1.1 100 Continue\r\n\r\n")


def silent(write: Write) -> None:
    """Accepts, reads, and says nothing for a while."""
    time.sleep(BYTES_OF_A_TRICKLE * PAUSE_S / 4)


def cut_off(write: Write) -> None:
    write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"version": ')


def no_http(write: Write) -> None:
    write(b"\x16\x03\x01\x00\xa5 this is something else\r\n\r\n")


def _trickle(write: Write, piece: bytes) -> None:
    for _ in range(BYTES_OF_A_TRICKLE):
        write(piece)
        time.sleep(PAUSE_S)


def _all(write: Write, content: bytes) -> None:
    write(content)
