"""What each kind of refit says to an engine, and which answers it takes for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import FakeEngine, plan, settings
from smokestack_payload import sabotage
from smokestack_payload.errors import ProtocolError
from smokestack_payload.refit.admin import EngineFleet, FleetError
from smokestack_payload.refit.protocols import CollectiveRpc, RefitProtocol, WeightRoutes, protocol_of
from smokestack_payload.settings import EngineAddress

MakeEngine = Callable[[], FakeEngine]
RPC = "/collective_rpc"


def round_of(engine: FakeEngine, protocol: RefitProtocol, ranks: int = 1) -> list[tuple[str, Any]]:
    """All that the engine hears of an initialisation and one round to version 3."""
    fleet = fleet_of(engine, protocol, ranks)
    fleet.init_weight_transfer_engine({"master_port": 1, "rank_offset": 9})
    fleet.start_weight_update()
    fleet.update_weights({"names": ["w"]})
    fleet.finish_weight_update()
    fleet.close()
    return engine.calls


def fleet_of(engine: FakeEngine, protocol: RefitProtocol, ranks: int = 1) -> EngineFleet:
    fleet = EngineFleet([EngineAddress(engine.url, world_size=ranks, rank_offset=2)], protocol=protocol)
    fleet.begin("3", 5)
    return fleet


def answers(engine: FakeEngine, *results: Any) -> None:
    engine.on(RPC, lambda _: (200, {"results": list(results)}))


def test_the_weight_routes(make_engine: MakeEngine) -> None:
    assert round_of(make_engine(), WeightRoutes()) == [
        ("/init_weight_transfer_engine", {"init_info": {"master_port": 1, "rank_offset": 2}}),
        ("/start_weight_update", None),
        ("/update_weights", {"update_info": {"names": ["w"]}}),
        ("/finish_weight_update", {"weight_version": "3"}),
    ]


METHODS = [
    (RPC, {"method": "smokestack_init_transfer", "kwargs": {"backend": "gloo", "init_info": {"rank_offset": 2}}}),
    (RPC, {"method": "smokestack_start_update"}),
    (RPC, {"method": "smokestack_update", "kwargs": {"update_info": {"names": ["w"]}}}),
    (RPC, {"method": "smokestack_finish_update"}),
    (RPC, {"method": "smokestack_set_version", "kwargs": {"version": "3"}}),
]


@pytest.mark.parametrize(("engine_label", "more"), [(False, []), (True, [("/update_weight_version", "3")])])
def test_the_worker_extensions_methods(engine_label: bool, more: list[Any], make_engine: MakeEngine) -> None:
    engine = make_engine()
    answers(engine, None)
    heard = round_of(engine, CollectiveRpc("gloo", engine_label))
    del heard[0][1]["kwargs"]["init_info"]["master_port"]
    assert heard == [*METHODS, *((path, {"new_version": version}) for path, version in more)]


def test_a_nameless_update_sets_no_label_anywhere(make_engine: MakeEngine) -> None:
    engine = make_engine()
    answers(engine, None)
    fleet = fleet_of(engine, CollectiveRpc("gloo", engine_label=True))
    fleet.finish(None)
    fleet.close()
    assert engine.calls == [(RPC, {"method": "smokestack_finish_update"})]


@pytest.mark.parametrize(
    "answer",
    [
        {"results": []},
        {"results": [None]},
        {"results": [None, None, None]},
        {"results": [None, False]},
        {"results": [None, "out of memory"]},
        {"results": None},
        {"results": {"0": None, "1": None}},
        {},
    ],
)
def test_an_answer_that_is_not_one_null_for_each_rank_fails_the_phase_and_is_shown(
    answer: Any, make_engine: MakeEngine
) -> None:
    engine = make_engine()
    engine.on(RPC, lambda _: (200, answer))
    fleet = fleet_of(engine, CollectiveRpc("gloo", engine_label=True), ranks=2)
    with pytest.raises(FleetError, match=r"start: .*not one null for each of 2 rank\(s\)") as failed:
        fleet.start_weight_update()
    fleet.close()
    shown = str(failed.value).replace('"', "'").replace("null", "None").replace("false", "False")
    assert str(answer) in shown
    assert fleet.failure.done()


def test_one_null_for_each_rank_is_a_good_answer(make_engine: MakeEngine) -> None:
    engine = make_engine()
    answers(engine, None, None)
    fleet = fleet_of(engine, CollectiveRpc("gloo", engine_label=False), ranks=2)
    fleet.start_weight_update()
    fleet.close()
    assert not fleet.failure.done()


def test_a_worker_that_keeps_no_version_keeps_the_engine_from_being_labelled(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.on(RPC, lambda body: (200, {"results": [None if body["method"] == "smokestack_finish_update" else "no"]}))
    fleet = fleet_of(engine, CollectiveRpc("gloo", engine_label=True))
    with pytest.raises(FleetError, match="finish"):
        fleet.finish_weight_update()
    fleet.close()
    assert "/update_weight_version" not in engine.paths


def test_the_configuration_names_the_protocol(make_engine: MakeEngine) -> None:
    assert isinstance(protocol_of(settings(None)), WeightRoutes)
    asked = replace(settings(None), refit="collective-rpc", engine_label=False)
    assert protocol_of(asked) == CollectiveRpc("gloo", engine_label=False)
    with pytest.raises(ProtocolError, match="no such kind of refit"):
        protocol_of(replace(asked, refit="pigeon"))


def test_the_sabotages_of_labels_and_weights_speak_every_protocol(make_engine: MakeEngine) -> None:
    engine = make_engine()
    answers(engine, None)
    asked = replace(settings(sabotage.WEIGHTS_WITHOUT_LABEL), refit="collective-rpc")
    fleet = sabotage.fleet_of(plan(engine), asked)
    fleet.begin(str(asked.steps), 5)
    fleet.finish_weight_update()
    fleet.close()
    assert engine.calls == [(RPC, {"method": "smokestack_finish_update"})]
