"""Each sabotage breaks one thing and nothing else, at the last version; without one, everything is the real thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import STEPS, FakeEngine, plan, settings
from smokestack_payload import misled, sabotage
from smokestack_payload.errors import ProtocolError
from smokestack_payload.refit.admin import EngineFleet

MakeEngine = Callable[[], FakeEngine]
UPDATE = {"names": ["a", "b", "c"], "dtype_names": ["float32"] * 3, "shapes": [[1]] * 3}


def told(engine: FakeEngine, name: str | None, version: int) -> list[tuple[str, Any]]:
    """All that the engine hears of an initialisation and one round to `version`."""
    fleet = sabotage.fleet_of(plan(engine), settings(name))
    fleet.begin(str(version), 5)
    fleet.init_weight_transfer_engine({"master_address": "127.0.0.1", "rank_offset": 1})
    fleet.start_weight_update()
    fleet.update_weights(UPDATE)
    fleet.finish_weight_update()
    fleet.close()
    return engine.calls


def heard(make_engine: MakeEngine, name: str | None, version: int) -> dict[str, Any]:
    return dict(told(make_engine(), name, version))


def test_without_one_the_fleet_and_the_plan_are_the_real_ones(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert type(sabotage.fleet_of(plan(engine), settings(None))) is EngineFleet
    assert sabotage.spoiled_plan(plan(engine), settings(None)) == plan(engine)
    assert sabotage.spoiled_connector(heard, settings(None)) is heard


def test_an_unknown_name_is_refused() -> None:
    sabotage.require_known(None)
    with pytest.raises(ProtocolError, match="no such sabotage"):
        sabotage.require_known("nonsense")


@pytest.mark.parametrize("name", [sabotage.UNKNOWN_NAME, sabotage.REFUSED_UPDATE, sabotage.WEIGHTS_WITHOUT_LABEL])
def test_only_the_last_version_is_spoiled(name: str, make_engine: MakeEngine) -> None:
    assert heard(make_engine, name, STEPS - 1) == heard(make_engine, None, STEPS - 1)
    assert heard(make_engine, name, STEPS) != heard(make_engine, None, STEPS)


def test_what_an_update_is_told_wrong(make_engine: MakeEngine) -> None:
    wrong_name = heard(make_engine, sabotage.UNKNOWN_NAME, STEPS)["/update_weights"]["update_info"]
    assert wrong_name == {**UPDATE, "names": ["a", misled.NOBODYS_NAME, "c"]}
    wrong_type = heard(make_engine, sabotage.REFUSED_UPDATE, STEPS)["/update_weights"]["update_info"]
    assert wrong_type == {**UPDATE, "dtype_names": [misled.NO_TYPE, "float32", "float32"]}


def test_weights_without_label_finish_without_a_version(make_engine: MakeEngine) -> None:
    assert heard(make_engine, None, STEPS)["/finish_weight_update"] == {"weight_version": str(STEPS)}
    assert heard(make_engine, sabotage.WEIGHTS_WITHOUT_LABEL, STEPS)["/finish_weight_update"] == {}


@pytest.mark.parametrize(("name", "resumed"), [(None, 5), (sabotage.LEFT_PAUSED, 4)])
def test_left_paused_is_after_the_last_refit_of_a_run_only(
    name: str | None, resumed: int, make_engine: MakeEngine
) -> None:
    engine = make_engine()
    fleet = sabotage.fleet_of(plan(engine), settings(name))
    for label in ("0", "1", "2", "2-perturbed", "2"):
        fleet.begin(label, 5)
        fleet.resume()
    fleet.close()
    assert STEPS == 2
    assert [path for path, _ in engine.calls] == ["/resume"] * resumed


def test_an_unreachable_master_is_told_to_the_engines_only(make_engine: MakeEngine) -> None:
    asked = heard(make_engine, sabotage.UNREACHABLE_MASTER, 0)["/init_weight_transfer_engine"]["init_info"]
    assert asked == {"master_address": misled.NOBODYS_ADDRESS, "rank_offset": 1}
    engine = make_engine()
    assert sabotage.spoiled_plan(plan(engine), settings(sabotage.UNREACHABLE_MASTER)) == plan(engine)


def test_ranks_and_sizes_of_the_plan(make_engine: MakeEngine) -> None:
    right = plan(make_engine())
    offset = sabotage.spoiled_plan(right, settings(sabotage.WRONG_RANK_OFFSET))
    assert offset == replace(right, engines=(replace(right.engines[0], rank_offset=2),))
    assert sabotage.spoiled_plan(right, settings(sabotage.WORLD_TOO_LARGE)) == replace(right, world_size=3)


def test_label_without_weights_sends_nothing_at_the_last_version(make_engine: MakeEngine) -> None:
    class Real:
        sent = 0
        worker_reports = ("of the real one",)

        def send_weights(self) -> None:
            self.sent += 1

    real, engine = Real(), make_engine()
    chosen = settings(sabotage.LABEL_WITHOUT_WEIGHTS)
    fleet = sabotage.fleet_of(plan(engine), chosen)
    transfer = sabotage.spoiled_connector(lambda _fleet, _source: real, chosen)(fleet, None)
    for version in range(STEPS + 1):
        fleet.begin(str(version), 5)
        transfer.send_weights()
    assert real.sent == STEPS
    assert engine.calls == [
        ("/start_weight_update", None),
        ("/update_weights", {"update_info": fleet.nothing}),
        ("/finish_weight_update", {"weight_version": str(STEPS)}),
    ]
    assert transfer.worker_reports == Real.worker_reports


def test_the_last_refit_leaves_a_stale_prefix_cache(make_engine: MakeEngine) -> None:
    def around(name: str | None, version: int) -> list[tuple[str, str]]:
        engine = make_engine()
        fleet = sabotage.fleet_of(plan(engine), settings(name))
        fleet.begin(str(version), 5)
        fleet.pause()
        fleet.reset_prefix_cache()
        fleet.resume()
        fleet.close()
        assert set(fleet.seconds) == {"pause", "reset", "resume"}
        return list(zip(engine.paths, engine.queries, strict=True))

    real = [("/pause", "mode=wait"), ("/reset_prefix_cache", ""), ("/resume", "")]
    assert around(None, STEPS) == around(sabotage.STALE_PREFIX_CACHE, STEPS - 1) == real
    assert around(sabotage.STALE_PREFIX_CACHE, STEPS) == [("/pause", "mode=wait&clear_cache=false"), ("/resume", "")]


UPDATE_OF_SIX = {
    "names": ["norm", "other norm", "a", "b", "c", "d"],
    "dtype_names": ["float32"] * 6,
    "shapes": [[4], [4], [2, 3], [3, 2], [2, 3], [2, 3]],
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (sabotage.MISLED_ENGINE, {"names": ["norm", "other norm", "c", "b", "a", "d"]}),
        (sabotage.REFUSED_BY_ONE, {"dtype_names": [misled.NO_TYPE, *["float32"] * 5]}),
    ],
)
def test_only_the_second_engine_is_told_something_wrong(
    make_engine: MakeEngine, name: str, changes: dict[str, Any]
) -> None:
    """Names are exchanged of the first two of equal type and shape that are no vectors."""
    told: dict[int, list[Any]] = {}
    for version in (STEPS - 1, STEPS):
        engines = [make_engine(), make_engine()]
        addresses = tuple(engine.address(1 + index) for index, engine in enumerate(engines))
        fleet = sabotage.fleet_of(replace(plan(engines[0]), engines=addresses), settings(name))
        fleet.begin(str(version), 5)
        fleet.update_weights(UPDATE_OF_SIX)
        fleet.close()
        told[version] = [dict(engine.calls)["/update_weights"]["update_info"] for engine in engines]
    assert told[STEPS - 1] == [UPDATE_OF_SIX, UPDATE_OF_SIX]
    assert told[STEPS] == [UPDATE_OF_SIX, {**UPDATE_OF_SIX, **changes}]


def test_rollouts_past_the_frontend_are_asked_of_the_first_engine(make_engine: MakeEngine) -> None:
    right = plan(make_engine())
    assert sabotage.sampling_plan(right, settings(None)) == right
    past = sabotage.sampling_plan(right, settings(sabotage.PAST_THE_FRONTEND))
    assert past == replace(right, frontend_url=right.engines[0].admin_url)
