"""The harness gives an engine an adapter by the routes that its worker advertises, and takes it away again.

Of three kinds of peers: one that takes it, one that advertises no such routes, one that advertises them and fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from harness.adapters import try_adapter
from harness.admin import LOAD_ADAPTER, UNLOAD_ADAPTER
from harness.clock import SteadyClock
from harness.events import AdapterObservation
from harness.observer import Observer
from harness.topology import Topology, Worker

NAME, FOLDER, PROMPT = "an-adapter", "/tmp/adapter", [2, 41]
PROMPT_LOGPROBS = [None, {"41": {"logprob": -5.5, "rank": 9}}]
ROUTES = ("control/is_paused", LOAD_ADAPTER, UNLOAD_ADAPTER)


class Served:
    """An engine and its sidecar on one address. Its answers are more likely while it has the adapter."""

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("").rstrip("/")
        self.loaded: set[str] = set()
        self.heard: list[tuple[str, Any]] = []
        self.refuses: dict[str, tuple[int, object]] = {}
        self.forgets = True
        for path in (*(f"/engine/{one}" for one in (LOAD_ADAPTER, UNLOAD_ADAPTER)), "/inference/v1/generate"):
            server.expect_request(path).respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        body = json.loads(request.get_data())
        self.heard.append((request.path, body))
        if request.path in self.refuses:
            status, answer = self.refuses[request.path]
            return Response(json.dumps(answer), status=status, content_type="application/json")
        if "lora" in request.path:
            change: Callable[[str], None] = self.loaded.discard if "unload" in request.path else self.loaded.add
            if self.forgets or "unload" not in request.path:
                change(body["lora_name"])
            return Response(json.dumps({"status": "success"}), content_type="application/json")
        if body["model"] not in {"tiny", *self.loaded}:
            return Response(json.dumps({"error": {"message": "no such model"}}), status=404)
        logprob = -0.5 if body["model"] == "tiny" else -0.25
        choice = {"token_ids": [5], "logprobs": {"content": [{"token_id": 5, "logprob": logprob, "rank": 1}]}}
        return Response(json.dumps({"choices": [choice], "prompt_logprobs": PROMPT_LOGPROBS}))

    def observed(self, *, routes: tuple[str, ...] = ROUTES, sidecar: bool = True) -> AdapterObservation:
        worker = Worker("backend", "1", self.url, self.url if sidecar else "", "tiny", 1, 0, routes)
        observer = Observer(Topology((worker,)), self.url, "tiny", SteadyClock(), request_s=2.0)
        [engine] = try_adapter(observer, NAME, FOLDER, [PROMPT]).engines
        return engine


@pytest.fixture
def served(httpserver: HTTPServer) -> Iterator[Served]:
    yield Served(httpserver)
    httpserver.check_assertions()


def test_it_is_loaded_asked_unloaded_and_asked_for_once_more(served: Served) -> None:
    seen = served.observed()
    assert [probe.logprobs for probe in seen.loaded] == [(-0.25,)]
    assert [probe.logprobs for probe in seen.unloaded] == [(-0.5,)]
    assert (seen.afterwards, seen.refusal, seen.failed) == (404, None, None)
    assert seen.advertised == (LOAD_ADAPTER, UNLOAD_ADAPTER)
    orders = [(path, body) for path, body in served.heard if "lora" in path]
    assert orders == [
        (f"/engine/{LOAD_ADAPTER}", {"lora_name": NAME, "source": {"uri": f"file://{FOLDER}"}}),
        (f"/engine/{UNLOAD_ADAPTER}", {"lora_name": NAME}),
    ]


def test_an_engine_that_keeps_it_is_seen_to(served: Served) -> None:
    served.forgets = False
    assert served.observed().afterwards == 200


LACKING = [
    ((), f"{LOAD_ADAPTER} and {UNLOAD_ADAPTER}"),
    (("control/is_paused",), f"{LOAD_ADAPTER} and {UNLOAD_ADAPTER}"),
    ((LOAD_ADAPTER,), UNLOAD_ADAPTER),
    ((UNLOAD_ADAPTER,), LOAD_ADAPTER),
]


@pytest.mark.parametrize(("routes", "lacking"), LACKING)
def test_what_a_worker_does_not_advertise_is_not_called(routes: tuple[str, ...], lacking: str, served: Served) -> None:
    seen = served.observed(routes=routes)
    assert seen.refusal == f"its worker does not advertise {lacking}"
    assert (seen.failed, seen.loaded, seen.unloaded, seen.afterwards) == (None, (), (), None)
    assert served.heard == []


def test_an_engine_without_a_sidecar_is_not_said_to_have_a_worker(served: Served) -> None:
    seen = served.observed(sidecar=False)
    assert seen.refusal == "it has no sidecar that could take one"
    assert served.heard == []


REFUSALS = {
    "status 500": ((500, {"error": "Call to add_lora method failed"}), "HTTP 500: ", "Call to add_lora method failed"),
    "an error with status 200": ((200, {"status": "error", "message": "no such file"}), "HTTP 200: ", "no such file"),
    "neither": ((200, {"status": "pending"}), "unexpected: HTTP 200: ", "pending"),
}


@pytest.mark.parametrize("order", [LOAD_ADAPTER, UNLOAD_ADAPTER])
@pytest.mark.parametrize("how", REFUSALS)
def test_an_order_that_fails_ends_the_trial_and_is_told_with_status_and_answer(
    how: str, order: str, served: Served
) -> None:
    answer, *words = REFUSALS[how]
    served.refuses[f"/engine/{order}"] = answer
    seen = served.observed()
    assert all(word in str(seen.failed) for word in (f"/engine/{order}", *words)), seen.failed
    assert (bool(seen.loaded), seen.unloaded, seen.afterwards) == (order == UNLOAD_ADAPTER, (), None)
    assert served.heard[-1][0] == f"/engine/{order}", "nothing more is asked"


def test_an_adapter_that_is_loaded_and_not_served_is_told(served: Served) -> None:
    served.refuses["/inference/v1/generate"] = (404, {"error": {"message": "The model `an-adapter` does not exist"}})
    assert "HTTP 404: " in str(served.observed().failed)
