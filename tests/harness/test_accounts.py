"""Whom an engine's weights are asked of, and that each kind of refit decides it for the whole run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from harness.accounts import OfRoutes, OfWorkers
from harness.admin import EngineAdmin
from harness.calling import HttpBodyError, HttpClient
from harness.credentials import NO_CREDENTIALS
from harness.dialect import DYNAMO_1_6, NATIVE_SIDECAR
from harness.errors import UsageError
from harness.refits import REFITS, chosen

AA = "a" * 64


def engine(server: HTTPServer, **told: Any) -> EngineAdmin:
    """An engine without routes for weights, whose workers answer as given."""
    answers = {
        "smokestack_weight_version": told.get("versions", ["3"]),
        "smokestack_update_open": told.get("open", [False]),
        "smokestack_contents": told.get("contents", []),
    }

    def handle(request: Request) -> Response:
        assert request.path == "/collective_rpc", f"{request.path} is no route of such an engine"
        order = json.loads(request.get_data())
        if order["method"] == "smokestack_contents":
            assert order["kwargs"] == {"whole": True}
        return Response(json.dumps({"results": answers[order["method"]]}), content_type="application/json")

    server.expect_request("/collective_rpc").respond_with_handler(handle)
    return EngineAdmin(HttpClient(server.url_for("").rstrip("/"), credentials=NO_CREDENTIALS))


@pytest.mark.parametrize(
    ("versions", "label"), [(["3"], "3"), (["3", "3"], "3"), (["3", "2"], "2 and 3"), (["default"], "default")]
)
def test_a_label_is_what_all_workers_say(versions: list[str], label: str, httpserver: HTTPServer) -> None:
    assert OfWorkers().label(engine(httpserver, versions=versions), len(versions)) == label


@pytest.mark.parametrize("versions", [["3"], ["3", "3", "3"]])
def test_a_worker_that_names_no_version_is_no_label(versions: list[str], httpserver: HTTPServer) -> None:
    with pytest.raises(HttpBodyError, match="not every worker named its version"):
        OfWorkers().label(engine(httpserver, versions=versions), 2)


@pytest.mark.parametrize(("told", "is_open"), [([False, False], False), ([False, True], True)])
def test_one_worker_with_an_open_update_is_one_too_many(
    told: list[bool], is_open: bool, httpserver: HTTPServer
) -> None:
    assert OfWorkers().has_open_update(engine(httpserver, open=told)) is is_open


def test_digests_come_from_the_workers_alone(httpserver: HTTPServer) -> None:
    one = {"name": "norm.weight", "how": "whole", "dtype": "float32", "shape": [2], "cut": None, "sha256": AA}
    [rank] = OfWorkers().held(engine(httpserver, contents=[{"prefix": "", "parameters": [one]}]))
    assert [(held.name, held.how, held.sha256) for held in rank] == [("norm.weight", "whole", AA)]


def test_each_kind_of_refit_asks_where_its_label_is() -> None:
    accounts = {kind: type(refit.account) for kind, refit in REFITS.items()}
    assert accounts["native"] is OfRoutes
    assert accounts["collective-rpc"] is OfWorkers


def test_the_stack_decides_unless_the_caller_does() -> None:
    assert chosen(None, DYNAMO_1_6) == "native"
    assert chosen("collective-rpc", DYNAMO_1_6) == "collective-rpc"
    assert chosen(None, NATIVE_SIDECAR) == "collective-rpc"


def test_a_kind_that_the_engine_has_no_routes_for_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--refit native: the engine of .*native-sidecar has no routes"):
        chosen("native", NATIVE_SIDECAR)
