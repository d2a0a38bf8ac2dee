"""A lost lease is added to what ended the run; etcd's silence is, too; anything else is left as it was."""

from __future__ import annotations

import pytest
from pytest_httpserver import HTTPServer

from harness.errors import DiscoveryError, Interrupted
from harness.leases import ROUTE, Leases


def lists(server: HTTPServer, *ids: str) -> str:
    """Let the server list these leases from now on; its base URL."""
    server.clear()
    server.expect_request(ROUTE, method="POST").respond_with_json({"leases": [{"ID": one} for one in ids]})
    return server.url_for("").rstrip("/")


def ended(leases: Leases) -> str:
    with pytest.raises(DiscoveryError) as caught, leases.naming_loss():
        raise DiscoveryError("no worker")
    return caught.value.what


def noted(url: str) -> Leases:
    leases = Leases(url)
    leases.note()
    return leases


def test_a_lease_that_is_gone_is_counted(httpserver: HTTPServer) -> None:
    leases = noted(lists(httpserver, "7", "8"))
    lists(httpserver, "8", "9")
    assert ended(leases) == "no worker; lease lost: 1 of the 2 leases that the stack lives by are gone from etcd"


def test_nothing_is_added_while_all_are_there(httpserver: HTTPServer) -> None:
    assert ended(noted(lists(httpserver, "7", "8"))) == "no worker"


def test_leases_are_noted_as_they_come_and_none_is_forgotten(httpserver: HTTPServer) -> None:
    leases = noted(lists(httpserver, "7"))
    lists(httpserver, "8")
    leases.note()
    assert ended(leases) == "no worker; lease lost: 1 of the 2 leases that the stack lives by are gone from etcd"


@pytest.mark.parametrize("held", [(), ("7",)])
def test_an_etcd_that_does_not_answer_any_more_is_named(httpserver: HTTPServer, held: tuple[str, ...]) -> None:
    leases = noted(lists(httpserver, *held))
    leases.etcd_url = "http://127.0.0.1:9"
    leases.note()
    assert ended(leases) == "no worker; etcd does not answer: no lease can be renewed"


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"leases": 1}', b'{"leases": [{}]}'])
def test_leases_that_were_never_known_cannot_be_lost(httpserver: HTTPServer, answer: bytes) -> None:
    httpserver.expect_request(ROUTE).respond_with_data(answer)
    leases = noted(httpserver.url_for("").rstrip("/"))
    assert leases.held == frozenset()
    assert ended(leases) == "no worker"


def test_an_interrupt_is_nobodys_loss() -> None:
    with pytest.raises(Interrupted) as caught, Leases("http://127.0.0.1:9", frozenset({"7"}), True).naming_loss():
        raise Interrupted("SIGINT")
    assert caught.value.what == "SIGINT"
