"""The 0.26 line of vLLM, whose NCCL engine is functions of the worker's class, driven by the real session."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nccl_peers import (
    BUFFER,
    Communicator,
    Journal,
    MakeEngine,
    body,
    check_order,
    plan,
    refitted,
    replayed,
    session_of,
    settings,
)
from smokestack_payload.errors import RefitError
from smokestack_payload.refit import nccl_helpers
from smokestack_payload.refit.admin import EngineFleet
from smokestack_payload.refit.backends import connector
from smokestack_payload.refit.manifest import Expected
from smokestack_payload.refit.protocols import protocol_of
from smokestack_payload.refit.session import RefitSession
from smokestack_payload.refit.source import ParameterSource
from vllm.distributed.weight_transfer import packed_tensor

pytestmark = pytest.mark.usefixtures("streams")


class Helpers:
    """The 0.26 line's interface: functions of the worker's class, which take a mapping and the group."""

    def __init__(self, journal: Journal, group: Communicator) -> None:
        self.journal, self.group = journal, group
        self.given: list[dict[str, Any]] = []

    def trainer_init(self, info: dict[str, Any]) -> Communicator:
        assert info == {"master_address": "127.0.0.1", "master_port": 29500, "world_size": 2}
        self.journal.lines.append("endpoint opened")
        return self.group

    def trainer_send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]], arguments: dict[str, Any]) -> None:
        self.given.append(arguments)
        packed_tensor.packed_nccl_broadcast_producer(
            iterator=iterator,
            group=arguments["group"],
            src=arguments["src"],
            post_iter_func=lambda pair: pair[1],
            buffer_size_bytes=arguments["packed_buffer_size_bytes"],
            num_buffers=arguments["packed_num_buffers"],
        )


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Helpers:
    made = Helpers(journal, Communicator(journal))
    monkeypatch.setattr(nccl_helpers, "vllm_engines", lambda: SimpleNamespace(NCCLWeightTransferEngine=made))
    return made


def test_the_older_line_is_told_its_packing_with_each_update(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    engine = make_engine()
    packing = {"packed": True, "buffer_bytes": BUFFER, "buffers": 3}
    chosen = settings(transfer="static-helpers", packing=packing)
    session = refitted(journal, model, chosen, engine, version=5)
    told = body(engine, "/init_weight_transfer_engine")["init_info"]
    assert set(told) == {"master_address", "master_port", "rank_offset", "world_size"}
    update = body(engine, "/update_weights")["update_info"]
    for told_or_done in (update, helpers.given[0]):
        assert (told_or_done["packed"], told_or_done["packed_buffer_size_bytes"]) == (True, BUFFER)
        assert told_or_done["packed_num_buffers"] == 3
    check_order(journal)
    received = replayed(journal, update, update)
    assert all(torch.equal(tensor, dict(model.named_parameters())[name]) for name, tensor in received)
    session.close()
    assert helpers.group.calls == ["abort"]


def test_the_older_line_reaches_workers_through_their_extension_as_well(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    """As the researcher's stack does it: no routes for weights, the same order of calls and collectives."""
    engine = make_engine()
    methods: list[str] = []

    def call(asked: Any) -> tuple[int, Any]:
        methods.append(asked["method"])
        if asked["method"] == "smokestack_update" and not journal.first.wait(timeout=5):
            return 500, {"error": "no broadcast came while the update was open"}
        return 200, {"results": [None]}

    engine.on("/collective_rpc", call)
    chosen = settings(transfer="static-helpers", refit="collective-rpc")
    there = plan(engine)
    source = ParameterSource(model)
    expected = Expected({one.name: one.shape for one in source.metadata()}, "bfloat16")
    session = RefitSession(EngineFleet(there.engines, protocol=protocol_of(chosen)), source, expected, 10)
    session.initialise(connector(chosen, there), 10)
    session.refit(2)
    order = ["init_transfer", "start_update", "update", "finish_update", "set_version"]
    assert methods == [f"smokestack_{name}" for name in order]
    update = next(
        body["kwargs"]["update_info"] for _, body in engine.calls if body and body.get("method") == methods[2]
    )
    assert all(
        torch.equal(one, dict(model.named_parameters())[name]) for name, one in replayed(journal, update, update)
    )


def test_the_older_line_aborts_as_well(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    engine = make_engine()
    session, initialise = session_of(model, settings(transfer="static-helpers"), engine, limit_s=3)
    initialise()
    helpers.group.gone = True
    engine.fail("/update_weights", 500, "gone")
    with pytest.raises(RefitError, match="gone"):
        session.refit(1)
    assert helpers.group.calls == ["abort"]


def test_a_source_that_yields_something_else_than_it_announced_sends_no_more(model: torch.nn.Module) -> None:
    metas = ParameterSource(model).metadata()
    pairs = list(model.named_parameters())
    assert [name for name, _ in nccl_helpers._as_announced(pairs, metas)] == [meta.name for meta in metas]
    for wrong in (pairs[:-1], [*pairs, ("more", torch.zeros(1))], [pairs[1], *pairs[1:]]):
        with pytest.raises(ValueError, match="announced"):
            list(nccl_helpers._as_announced(wrong, metas))
