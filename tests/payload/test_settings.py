"""What the harness tells the trainer, in its configuration and its plan, is complete, known and possible."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from conftest import configured, grpo
from smokestack_payload.errors import ProtocolError
from smokestack_payload.settings import Cut, Plan, Slice, TrainerSettings


@pytest.mark.parametrize(
    ("grpo_fields", "said"),
    [
        ({**asdict(grpo()), "temperature": 0.7}, "temperature"),
        ({**asdict(grpo()), "group_size": 1}, "groups to compare"),
        (3, "grpo is not an object"),
        ({"group_size": 2}, "does not have the fields"),
    ],
)
def test_settings_refuse_what_cannot_be_trained(grpo_fields: Any, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        TrainerSettings.parse(configured(Path("m"), grpo=grpo_fields))


@pytest.mark.parametrize("name", sorted(configured(Path("m"))))
def test_no_setting_has_a_default_beside_the_runs_own(name: str) -> None:
    given = configured(Path("m"))
    del given[name]
    with pytest.raises(ProtocolError) as caught:
        TrainerSettings.parse(given)
    assert f"missing: ['{name}']" in str(caught.value.found)


def test_a_plan_without_engines_or_with_a_missing_field_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        Plan.parse({"command": "plan", "engines": []})
    assert "master_port" in str(caught.value.found)
    rest = dict.fromkeys(("frontend_url", "served_model_name", "master_address"), "x")
    with pytest.raises(ProtocolError, match="names no engine"):
        Plan.parse({**rest, "world_size": 1, "master_port": 1, "engines": []})


PLAN: dict[str, Any] = {
    "command": "plan",
    "frontend_url": "http://127.0.0.1:1",
    "served_model_name": "tiny",
    "engines": [{"admin_url": "http://127.0.0.1:2/", "world_size": 2, "rank_offset": 1}],
    "world_size": 3,
    "master_address": "127.0.0.1",
    "master_port": 3,
}
CUT = {"dim": 0, "start": 2, "stop": 5}


def test_a_plan_names_the_slices_whose_digests_are_wanted() -> None:
    assert Plan.parse(PLAN).slices == ()
    [one] = Plan.parse({**PLAN, "slices": [{"name": "a.weight", "cut": CUT}]}).slices
    assert one == Slice("a.weight", Cut(dim=0, start=2, stop=5))
    assert one.cut.size == 3


@pytest.mark.parametrize(
    "wrong", [{"name": "a"}, {"name": "a", "cut": {"dim": 0}}, {"name": "a", "cut": {**CUT, "step": 1}}, "a"]
)
def test_a_slice_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ProtocolError, match=r"plan\.slices"):
        Plan.parse({**PLAN, "slices": [wrong]})


@pytest.mark.parametrize("wrong", [{"buffer_bytes": 0}, {"buffers": 0}])
def test_packing_needs_room(wrong: dict[str, int]) -> None:
    packing = {"packed": True, "buffer_bytes": 1, "buffers": 1, **wrong}
    with pytest.raises(ProtocolError, match="packing needs room"):
        TrainerSettings.parse(configured(Path("m"), packing=packing))
