"""Several engines and ranks on the real CPU stack: the same checks as ever, each of them for every engine."""

from __future__ import annotations

from typing import Any

import pytest

from smoke.runner import Outcome, assert_nothing_left, harness

STEPS = 2

SIZES = [
    pytest.param((1, 1), id="two engines"),
    pytest.param((2,), id="two ranks", marks=pytest.mark.slow),
    pytest.param((2, 1), id="unequal", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=SIZES)
def sizes(request: pytest.FixtureRequest) -> tuple[int, ...]:
    chosen: tuple[int, ...] = request.param
    return chosen


@pytest.fixture(scope="module")
def run(sizes: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    options = [part for ranks in sizes for part in ("--engine", f"tp={ranks}")]
    return harness("smoke", "--steps", str(STEPS), *options, run_dir=tmp_path_factory.mktemp("engines") / "run")


def engines_at(run: Outcome, version: int) -> list[dict[str, Any]]:
    engines: list[dict[str, Any]] = run.only("observed", version=version)["engines"]
    return engines


def test_every_check_passes_and_nothing_is_left(run: Outcome) -> None:
    assert run.returncode == 0, run.explain()
    assert {check["status"] for check in run.verdict["checks"]} == {"pass"}
    assert run.verdict["policy_versions"] == list(range(STEPS + 1))
    assert_nothing_left(run)


def test_the_table_of_ranks_is_told_before_the_group_is_made(run: Outcome, sizes: tuple[int, ...]) -> None:
    lines = [line.strip() for line in run.stderr.splitlines()]
    group = next(place for place, line in enumerate(lines) if f"transfer group of {sum(sizes) + 1} ranks" in line)
    table = [line.split()[:6] for line in lines[:group] if line.startswith(("rank ", "ranks "))]
    assert table[0] == ["rank", "0", "trainer"]
    first = 1
    for index, ranks in enumerate(sizes):
        numbers = ["rank", str(first)] if ranks == 1 else ["ranks", f"{first}-{first + ranks - 1}"]
        assert table[index + 1][:5] == [*numbers, f"engine-{index}", "offset", str(first)]
        first += ranks


def test_each_engine_is_a_worker_of_its_own_with_the_ranks_it_was_given(run: Outcome, sizes: tuple[int, ...]) -> None:
    workers = run.only("topology")["workers"]
    assert [worker["engine"] for worker in workers] == [f"engine-{index}" for index in range(len(sizes))]
    assert tuple(worker["world_size"] for worker in workers) == sizes
    assert len({worker["component"] for worker in workers}) == len(sizes)


def test_every_engine_has_every_version(run: Outcome, sizes: tuple[int, ...]) -> None:
    for version in range(STEPS + 1):
        engines = engines_at(run, version)
        labels = [(engine["engine_label"], engine["sidecar_label"]) for engine in engines]
        assert labels == [(str(version), str(version))] * len(sizes)
        assert tuple(len(engine["ranks"]) for engine in engines) == sizes


def test_the_frontend_spreads_each_steps_rollouts_over_all_engines(run: Outcome) -> None:
    for step in range(1, STEPS + 1):
        served = [
            after["finished"]["before"] - before["finished"]["after"]
            for before, after in zip(engines_at(run, step - 1), engines_at(run, step), strict=True)
        ]
        assert min(served) > 0
        assert sum(served) >= run.only("step", step=step)["rollouts"]


def test_every_rank_gives_evidence_of_all_that_it_has(run: Outcome, sizes: tuple[int, ...]) -> None:
    """A slice is compared with the same slice of the trainer's, not merely counted as unseen."""
    found = next(check["found"] for check in run.verdict["checks"] if check["id"] == "policy.weights-digests")
    assert found.endswith(", 0 without evidence"), found
    for ranks, engine in zip(sizes, engines_at(run, STEPS), strict=True):
        cut = [[parameter["name"] for parameter in rank if parameter["cut"]] for rank in engine["ranks"]]
        assert all(names for names in cut) is (ranks > 1)
        assert all("norm.weight" not in name for names in cut for name in names)
