"""Changes of etcd's records: the worker's own and no others, and all as before where they are to be undone."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from harness.errors import DoctorError
from harness.sabotage import records

ID = 0x33B0A2295702170A
LEASE = "3724655190272513802"
OWN = f"v1/instances/dynamo/backend/rl/{ID:x}"
OTHER = f"v1/instances/dynamo/backend/generate/{ID:x}"
MODEL = f"v1/mdc/dynamo/backend/generate/{ID:x}"


def instance(endpoint: str, number: int = ID) -> dict[str, Any]:
    return {"endpoint": endpoint, "instance_id": number, "transport": {"tcp": f"127.0.0.1:1/{ID:x}/{endpoint}"}}


def model(number: int = ID) -> dict[str, Any]:
    return {"type": "Model", "instance_id": number, "card_json": {"display_name": "tiny"}}


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


class Etcd:
    """Ranges, deletions, puts and transactions of these over a dictionary, as etcd's gateway answers them."""

    def __init__(self, server: HTTPServer) -> None:
        self.values = {OWN: instance("rl"), OTHER: instance("generate"), MODEL: model(), "v1/other": 7}
        self.leases = dict.fromkeys(self.values, LEASE)
        self.url = server.url_for("").rstrip("/")
        for name in ("range", "put", "deleterange", "txn"):
            server.expect_request(f"/v3/kv/{name}").respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        return Response(json.dumps(getattr(self, request.path.rpartition("/")[2])(request.get_json(force=True))))

    def _keys(self, asked: dict[str, str]) -> list[str]:
        first = decoded(asked["key"])
        end = decoded(asked["range_end"]) if "range_end" in asked else first + "\0"
        return [key for key in self.values if first <= key < end]

    def range(self, asked: dict[str, str]) -> dict[str, Any]:
        coded = [(key, json.dumps(self.values[key])) for key in self._keys(asked)]
        rows = [
            {
                "key": base64.b64encode(key.encode()).decode(),
                "value": base64.b64encode(value.encode()).decode(),
                "lease": self.leases[key],
            }
            for key, value in coded
        ]
        return {"kvs": rows} if rows else {}

    def put(self, asked: dict[str, str]) -> dict[str, Any]:
        key = decoded(asked["key"])
        self.values[key], self.leases[key] = json.loads(decoded(asked["value"])), asked["lease"]
        return {}

    def deleterange(self, asked: dict[str, str]) -> dict[str, Any]:
        keys = self._keys(asked)
        for key in keys:
            del self.values[key]
        return {"deleted": str(len(keys))}

    def txn(self, asked: dict[str, Any]) -> dict[str, Any]:
        for change in asked["success"]:
            if "requestPut" in change:
                self.put(change["requestPut"])
            else:
                self.deleterange(change["requestDeleteRange"])
        return {"succeeded": True}


@pytest.fixture
def etcd(httpserver: HTTPServer) -> Etcd:
    return Etcd(httpserver)


def test_every_worker_gets_another_id_and_keeps_all_else(etcd: Etcd) -> None:
    records.replace_instance(etcd.url)
    new = ID ^ 1
    renamed = {key: key.replace(f"{ID:x}", f"{new:x}") for key in (OWN, OTHER, MODEL)}
    assert etcd.values == {
        renamed[OWN]: instance("rl", new),
        renamed[OTHER]: instance("generate", new),
        renamed[MODEL]: model(new),
        "v1/other": 7,
    }
    assert {etcd.leases[key] for key in renamed.values()} == {LEASE}


def test_the_model_is_away_meanwhile_and_back_afterwards(etcd: Etcd) -> None:
    before = dict(etcd.values)
    with pytest.raises(ZeroDivisionError), records.without_model(etcd.url):
        assert set(before) - set(etcd.values) == {MODEL}
        raise ZeroDivisionError
    assert etcd.values == before
    assert etcd.leases[MODEL] == LEASE


def test_nothing_to_change_is_an_error(etcd: Etcd) -> None:
    etcd.values.clear()
    with pytest.raises(DoctorError, match="nothing to change"):
        records.replace_instance(etcd.url)
    with pytest.raises(DoctorError, match="nothing to change"), records.without_model(etcd.url):
        pass


def test_an_etcd_that_refuses_or_does_not_answer_is_an_error(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v3/kv/range").respond_with_data("no leader", status=503)
    with pytest.raises(DoctorError, match="could not change") as refused:
        records.replace_instance(httpserver.url_for("").rstrip("/"))
    assert refused.value.found == "HTTP 503: no leader"
    with pytest.raises(DoctorError, match="could not change"):
        records.replace_instance("http://127.0.0.1:9")
