"""Probes ask once, briefly and straight, and sort what they hear into ready, pending and fatal."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from pytest_httpserver import HTTPServer

from harness.credentials import Credentials
from harness.fetching import BODY_LIMIT_BYTES
from harness.probes import (
    Fatal,
    HttpProbe,
    JsonProbe,
    Outcome,
    Pending,
    Ready,
    TcpProbe,
    fetch,
)


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def trickling() -> Iterator[str]:
    """A server that sends one byte of its answer every 20 ms, without end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not done.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        done.set()
        thread.join()


def test_the_expected_status_is_ready(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/health").respond_with_data("")
    assert HttpProbe("engine-0 GET /health", httpserver.url_for("/health")).check() == Ready()


@pytest.mark.parametrize("status", [301, 404, 500, 503])
def test_any_other_status_is_pending_and_quoted(httpserver: HTTPServer, status: int) -> None:
    httpserver.expect_request("/health").respond_with_data("not\n yet", status=status)
    outcome = HttpProbe("health", httpserver.url_for("/health")).check()
    assert isinstance(outcome, Pending)
    assert outcome.reason.endswith(f"/health answered {status}, not 200: not yet")


def test_statuses_that_waiting_cannot_cure_are_fatal(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/rl/workers").respond_with_data("forbidden", status=403)
    outcome = HttpProbe("workers", httpserver.url_for("/v1/rl/workers"), fatal=frozenset({403})).check()
    assert isinstance(outcome, Fatal)
    assert "403" in outcome.reason


def test_a_redirect_is_not_followed(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/old").respond_with_data("", status=302, headers={"Location": "/new"})
    httpserver.expect_request("/new").respond_with_data("")
    assert fetch(httpserver.url_for("/old"), timeout_s=2).status == 302
    assert len(httpserver.log) == 1


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_the_callers_proxies_are_ignored(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    httpserver.expect_request("/health").respond_with_data("")
    assert HttpProbe("health", httpserver.url_for("/health")).check() == Ready()


def test_a_server_that_is_not_there_is_pending(closed_port: int) -> None:
    outcome = HttpProbe("health", f"http://127.0.0.1:{closed_port}/health").check()
    assert isinstance(outcome, Pending)
    assert "refused" in outcome.reason


def test_a_server_that_accepts_and_stays_silent_is_pending_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/health"
        outcome = HttpProbe("health", url, timeout_s=0.1).check()
    assert isinstance(outcome, Pending)
    assert "not complete after 0.1 s" in outcome.reason


def test_an_answer_that_trickles_in_is_bounded_as_a_whole(trickling: str) -> None:
    began = time.monotonic()
    with pytest.raises(httpx.ReadTimeout, match="not complete after"):
        fetch(trickling, timeout_s=0.2)
    assert time.monotonic() - began < 2


def test_a_body_is_read_up_to_a_limit(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/big").respond_with_data(b"x" * 5000)
    url = httpserver.url_for("/big")
    cut, whole = (fetch(url, timeout_s=2, limit_bytes=limit) for limit in (100, 5000))
    assert (cut.body, cut.truncated) == (b"x" * 100, True)
    assert (whole.body, whole.truncated) == (b"x" * 5000, False)


def test_a_request_carries_its_method_body_and_headers(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/control", method="POST", data="{}", headers={"X-Key": "k"}).respond_with_data("")
    given = Credentials(headers={"X-Key": "k"}, sources={"X-Key": "--header"})
    probe = HttpProbe("control", httpserver.url_for("/control"), method="POST", content=b"{}", credentials=given)
    assert probe.check() == Ready()


def models(document: object) -> Outcome:
    return Ready("published") if document == {"data": ["tiny"]} else Pending(f"found {document}")


def test_a_json_answer_is_judged(httpserver: HTTPServer) -> None:
    httpserver.expect_ordered_request("/v1/models").respond_with_json({"data": []})
    httpserver.expect_ordered_request("/v1/models").respond_with_json({"data": ["tiny"]})
    probe = JsonProbe("frontend GET /v1/models", httpserver.url_for("/v1/models"), models)
    assert probe.check() == Pending("found {'data': []}")
    assert probe.check() == Ready("published")


def test_an_answer_that_is_not_json_is_pending_and_an_endless_one_fatal(httpserver: HTTPServer) -> None:
    httpserver.expect_ordered_request("/v1/models").respond_with_data("<html>starting</html>")
    httpserver.expect_ordered_request("/v1/models").respond_with_data(b" " * (BODY_LIMIT_BYTES + 1))
    probe = JsonProbe("models", httpserver.url_for("/v1/models"), models)
    first, second = probe.check(), probe.check()
    assert isinstance(first, Pending)
    assert "<html>starting" in first.reason
    assert isinstance(second, Fatal)


def test_an_excerpt_is_one_short_line(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/health").respond_with_data(b"Traceback\n  line \xff 1" + b" x" * 5000, status=500)
    outcome = HttpProbe("health", httpserver.url_for("/health")).check()
    assert isinstance(outcome, Pending)
    assert ": Traceback line \N{REPLACEMENT CHARACTER} 1 x" in outcome.reason
    assert len(outcome.reason) < 350


def test_a_port_is_ready_when_it_accepts(closed_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert isinstance(TcpProbe("gRPC", "127.0.0.1", server.getsockname()[1]).check(), Ready)
    outcome = TcpProbe("gRPC", "127.0.0.1", closed_port).check()
    assert isinstance(outcome, Pending)
    assert "refused" in outcome.reason
