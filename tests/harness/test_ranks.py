"""The table of the transfer group: rank, engine, offset; for people and for programs."""

from __future__ import annotations

from harness.ranks import ranks, table
from harness.report.narration import narrate
from tests.harness.event_factory import admin_url, run_config, topology

UNEQUAL = topology(run_config(tensor_parallel=(2, 1)))


def test_the_trainer_is_rank_0_and_the_engines_follow_with_their_offsets() -> None:
    assert table(UNEQUAL.workers) == [
        "rank 0     trainer",
        f"ranks 1-2  engine-0  offset 1  backend  {admin_url(0)}",
        f"rank 3     engine-1  offset 3  backend  {admin_url(1)}",
    ]


def test_programs_get_a_record_for_each_rank() -> None:
    assert ranks(UNEQUAL.workers) == [
        {"rank": 1, "engine": "engine-0", "engine_rank": 0, "offset": 1},
        {"rank": 2, "engine": "engine-0", "engine_rank": 1, "offset": 1},
        {"rank": 3, "engine": "engine-1", "engine_rank": 0, "offset": 3},
    ]


def test_it_is_told_when_the_topology_is_known_which_is_before_the_group_is_made() -> None:
    told = narrate(UNEQUAL)
    assert told is not None
    first, *rest = told.splitlines()
    assert first == "discovered 2 engines, world size 3"
    assert [line.strip() for line in rest] == table(UNEQUAL.workers)
