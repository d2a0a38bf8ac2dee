"""The transfer group as a table, before it is made: which rank is whose, and where each engine's ranks begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from harness.events import Worker
from harness.topology import TRAINER_RANKS


class Place(NamedTuple):
    """The ranks `first` to `last` of the transfer group; `first` is the engine's offset in it."""

    first: int
    last: int
    engine: str
    component: str
    admin_url: str


def places(workers: Iterable[Worker]) -> Iterator[Place]:
    """Of each engine, in rank order."""
    for worker in workers:
        first = worker.rank_offset + TRAINER_RANKS
        yield Place(first, first + worker.world_size - 1, worker.engine, worker.component, worker.admin_url)


def table(workers: Iterable[Worker]) -> list[str]:
    """A line for the trainer and for each engine."""
    rows = [("rank 0", "trainer", "", "", "")]
    for one in places(workers):
        ranks = f"rank {one.first}" if one.first == one.last else f"ranks {one.first}-{one.last}"
        rows.append((ranks, one.engine, f"offset {one.first}", one.component, one.admin_url))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def ranks(workers: Iterable[Worker]) -> list[dict[str, object]]:
    """The same for programs: one record for each rank of an engine."""
    return [
        {"rank": rank, "engine": one.engine, "engine_rank": rank - one.first, "offset": one.first}
        for one in places(workers)
        for rank in range(one.first, one.last + 1)
    ]
