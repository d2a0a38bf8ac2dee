"""Discovery: what is waited for, what ends the run, and how ranks follow from the answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer

from harness.clock import Deadline
from harness.discovery import DiscoveryProbe, complete_topology, require_same
from harness.errors import DiscoveryError, ServiceDiedError
from harness.poller import assume_alive
from harness.probes import Fatal, Pending, Ready
from harness.topology import Expectation, Snapshot, Topology, describe_change, rank_offsets, topology_event
from harness.workers import classify, normalise_url
from tests.harness.fakes import worker, workers_answer

ONE = Expectation("tiny", 1)


def decide(workers: Sequence[dict[str, Any]], expected: Expectation = ONE, **fields: Any) -> Snapshot | Pending | Fatal:
    return classify(200, workers_answer(workers, **fields), expected)


def pinned(workers: Sequence[dict[str, Any]], world_size: int) -> Topology:
    found = decide(workers, Expectation("tiny", world_size))
    assert isinstance(found, Snapshot), found
    return found.topology


class TestRanks:
    def test_one_record_is_one_engine_and_may_be_many_ranks(self) -> None:
        topology = pinned([worker(i, world_size=2) for i in range(4)], 8)
        assert [w.rank_offset for w in topology.workers] == [0, 2, 4, 6]
        assert topology.world_size == 8

    def test_the_trainer_is_rank_zero_of_the_transfer_group(self) -> None:
        topology = pinned([worker(0, world_size=2), worker(1, world_size=1)], 3)
        assert [w.transfer_offset for w in topology.workers] == [1, 3]

    def test_unequal_sizes_are_normal(self) -> None:
        assert rank_offsets([2, 1, 4]) == [0, 2, 3]

    def test_instance_ids_are_ordered_as_numbers(self) -> None:
        topology = pinned([worker(0, instance_id=10), worker(1, instance_id=9)], 2)
        assert [w.instance_id for w in topology.workers] == ["9", "10"]

    def test_components_come_before_instance_ids(self) -> None:
        topology = pinned([worker(0, component="b", instance_id=1), worker(1, component="a", instance_id=2)], 2)
        assert [w.component for w in topology.workers] == ["a", "b"]

    @settings(deadline=None)
    @given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6), seed=st.integers())
    def test_the_order_of_the_answer_changes_nothing(self, sizes: list[int], seed: int) -> None:
        workers = [worker(i, world_size=size) for i, size in enumerate(sizes)]
        shuffled = random.Random(seed).sample(workers, len(workers))
        assert pinned(workers, sum(sizes)) == pinned(shuffled, sum(sizes))

    @settings(deadline=None)
    @given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6))
    def test_ranks_are_covered_once_without_gaps(self, sizes: list[int]) -> None:
        topology = pinned([worker(i, world_size=size) for i, size in enumerate(sizes)], sum(sizes))
        ranks = [w.rank_offset + i for w in topology.workers for i in range(w.world_size)]
        assert ranks == list(range(sum(sizes)))


class TestPending:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 599])
    def test_a_busy_or_failing_server_is_asked_again(self, status: int) -> None:
        assert isinstance(classify(status, b"later", ONE), Pending)

    def test_no_workers_yet(self) -> None:
        assert isinstance(decide([]), Pending)

    def test_only_other_models_so_far(self) -> None:
        assert isinstance(decide([worker(0, model="other")]), Pending)

    def test_a_worker_with_an_error_is_quoted(self) -> None:
        found = decide([worker(0, error="engine\x1b[31m unreachable")])
        assert isinstance(found, Pending)
        assert "engine unreachable" in found.reason

    def test_an_error_record_may_lack_everything_else(self) -> None:
        bare = {"component": "backend", "instance_id": 3, "error": "timed out"}
        assert isinstance(decide([bare]), Pending)

    def test_world_size_still_short(self) -> None:
        found = decide([worker(0)], Expectation("tiny", 2))
        assert isinstance(found, Pending)
        assert "1 of 2" in found.reason

    @pytest.mark.parametrize("missing", ["admin_base_url", "system_url", "world_size"])
    def test_a_worker_that_has_not_published_everything(self, missing: str) -> None:
        assert isinstance(decide([worker(0, **{missing: None})]), Pending)


class TestFatal:
    @pytest.mark.parametrize("version", [0, 2, 1.0, "1", True, None, [1], {"v": 1}])
    def test_any_protocol_version_but_the_integer_one(self, version: object) -> None:
        assert isinstance(decide([worker(0)], protocol_version=version), Fatal)

    def test_a_missing_protocol_version(self) -> None:
        assert isinstance(classify(200, json.dumps({"workers": []}).encode(), ONE), Fatal)

    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410])
    def test_other_statuses(self, status: int) -> None:
        assert isinstance(classify(status, b"", ONE), Fatal)

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff\xfe"])
    def test_a_body_that_is_no_answer(self, body: bytes) -> None:
        assert isinstance(classify(200, body, ONE), Fatal)

    @pytest.mark.parametrize("size", [0, -1, 1.0, "1", True])
    def test_a_world_size_that_is_no_positive_integer(self, size: object) -> None:
        assert isinstance(decide([worker(0, world_size=size)]), Fatal)

    def test_the_same_instance_twice(self) -> None:
        found = decide([worker(0), worker(1, instance_id=worker(0)["instance_id"])], Expectation("tiny", 2))
        assert isinstance(found, Fatal)
        assert "instance_id" in found.reason

    def test_the_same_admin_url_twice_however_it_is_written(self) -> None:
        workers = [
            worker(0, admin_base_url="http://127.0.0.1:9/v1/"),
            worker(1, admin_base_url="http://127.0.0.1:9"),
        ]
        found = decide(workers, Expectation("tiny", 2))
        assert isinstance(found, Fatal)
        assert "admin URL" in found.reason

    def test_the_same_system_url_twice(self) -> None:
        workers = [worker(0, system_url="http://127.0.0.1:9"), worker(1, system_url="http://127.0.0.1:9/")]
        assert isinstance(decide(workers, Expectation("tiny", 2)), Fatal)

    def test_mixed_capabilities(self) -> None:
        found = decide([worker(0), worker(1, routes=["control/is_paused"])], Expectation("tiny", 2))
        assert isinstance(found, Fatal)
        assert "mixed" in found.reason

    def test_the_order_of_routes_is_no_difference(self) -> None:
        workers = [worker(0, routes=["a", "b"]), worker(1, routes=["b", "a"])]
        assert isinstance(decide(workers, Expectation("tiny", 2)), Snapshot)

    def test_too_many_ranks(self) -> None:
        found = decide([worker(0, world_size=2)])
        assert isinstance(found, Fatal)
        assert "expected 1, found 2" in found.reason

    @pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "127.0.0.1:8002", "/v1", ""])
    def test_an_admin_url_that_is_no_http_url(self, url: str) -> None:
        assert isinstance(decide([worker(0, admin_base_url=url)]), Fatal)

    def test_duplicates_of_another_model_are_none_of_ours(self) -> None:
        other = worker(1, model="other")
        assert isinstance(decide([worker(0), other, other]), Snapshot)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("http://h:1//", "http://h:1"),
        ("http://h:1/proxy/v1/", "http://h:1/proxy"),
        ("https://h/api/v10", "https://h/api/v10"),
    ],
)
def test_admin_urls_are_normalised(url: str, expected: str) -> None:
    assert normalise_url(url) == expected
    assert normalise_url(normalise_url(url)) == expected


class TestFingerprint:
    @pytest.mark.parametrize(
        "change",
        [
            {"instance_id": 99},
            {"component": "prefill"},
            {"admin_base_url": "http://127.0.0.1:7/"},
            {"system_url": "http://127.0.0.1:7"},
        ],
    )
    def test_every_change_of_a_worker_changes_it(self, change: dict[str, Any]) -> None:
        before, after = pinned([worker(0)], 1), pinned([worker(0, **change)], 1)
        assert before.fingerprint != after.fingerprint
        assert describe_change(before, after)

    def test_moving_a_rank_between_engines_changes_it(self) -> None:
        before = pinned([worker(0, world_size=1), worker(1, world_size=2)], 3)
        after = pinned([worker(0, world_size=2), worker(1, world_size=1)], 3)
        assert before.fingerprint != after.fingerprint

    def test_the_event_tells_the_configured_world_size_beside_the_found_one(self) -> None:
        event = topology_event(pinned([worker(0)], 1), ONE)
        assert (event.world_size, event.expected_world_size) == (1, 1)
        assert event.workers[0].admin_url == "http://127.0.0.1:8002"


class TestProbe:
    def test_one_snapshot_is_not_enough(self, httpserver: HTTPServer) -> None:
        probe = self._probe(httpserver, [worker(0)], [worker(0)])
        assert isinstance(probe.check(), Pending)
        assert probe.topology is None
        assert isinstance(probe.check(), Ready)
        assert probe.topology == pinned([worker(0)], 1)

    def test_a_different_second_snapshot_starts_anew(self, httpserver: HTTPServer) -> None:
        probe = self._probe(httpserver, [worker(0)], [worker(0, instance_id=5)], [worker(0, instance_id=5)])
        assert [type(probe.check()) for _ in range(3)] == [Pending, Pending, Ready]

    def test_a_gap_between_equal_snapshots_starts_anew(self, httpserver: HTTPServer) -> None:
        probe = self._probe(httpserver, [worker(0)], [], [worker(0)], [worker(0)])
        assert [type(probe.check()) for _ in range(4)] == [Pending, Pending, Pending, Ready]

    def test_nobody_listens(self) -> None:
        assert isinstance(DiscoveryProbe("http://127.0.0.1:1/v1/rl/workers", ONE).check(), Pending)

    def test_an_endless_body_is_not_read(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/v1/rl/workers").respond_with_data(b" " * 2_000_000)
        assert isinstance(DiscoveryProbe(httpserver.url_for("/v1/rl/workers"), ONE).check(), Fatal)

    def test_a_redirect_is_not_followed(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/v1/rl/workers").respond_with_data(status=302, headers={"Location": "/elsewhere"})
        assert isinstance(DiscoveryProbe(httpserver.url_for("/v1/rl/workers"), ONE).check(), Fatal)

    @staticmethod
    def _probe(server: HTTPServer, *answers: list[dict[str, Any]]) -> DiscoveryProbe:
        for workers in answers:
            server.expect_ordered_request("/v1/rl/workers").respond_with_data(workers_answer(workers))
        return DiscoveryProbe(server.url_for("/v1/rl/workers"), ONE)


class TestStaysTheSame:
    def test_the_same_answer_passes(self) -> None:
        require_same(pinned([worker(0)], 1), pinned([worker(0)], 1), "http://d")

    def test_a_replaced_worker_is_named(self) -> None:
        after = pinned([worker(0, instance_id=77)], 1)
        with pytest.raises(DiscoveryError, match="topology changed") as caught:
            require_same(pinned([worker(0)], 1), after, "http://d")
        assert "gone: backend/1" in str(caught.value)
        assert "new: backend/77" in str(caught.value)


@dataclass
class Answers:
    """A discovery service that gives these answers, the last one for ever."""

    answers: list[Snapshot | Pending | Fatal]
    url: str = "http://d"

    def ask(self) -> Snapshot | Pending | Fatal:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class SteppingClock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class TestAskedAnew:
    def ask(self, *answers: Snapshot | Pending | Fatal, alive: Callable[[], None] = assume_alive) -> Topology:
        clock = SteppingClock()
        deadline = Deadline.after(clock, 5.0)
        return complete_topology(Answers(list(answers)), deadline=deadline, clock=clock, alive=alive)

    def test_a_slow_or_busy_frontend_is_asked_again(self) -> None:
        topology = pinned([worker(0)], 1)
        assert self.ask(Pending("ReadTimeout"), Pending("HTTP 503"), Snapshot(topology)) == topology

    def test_another_topology_is_an_answer_too(self) -> None:
        other = pinned([worker(0, instance_id=77)], 1)
        assert self.ask(Snapshot(other)) == other

    def test_no_complete_answer_ends_at_the_deadline(self) -> None:
        with pytest.raises(DiscoveryError, match="no longer served") as caught:
            self.ask(Pending("no worker"))
        assert (caught.value.expected, caught.value.found) == ("a complete answer within 5 s", "no worker")

    def test_what_waiting_cannot_mend_ends_at_once(self) -> None:
        with pytest.raises(DiscoveryError) as caught:
            self.ask(Fatal("too many ranks"), Snapshot(pinned([worker(0)], 1)))
        assert caught.value.found == "too many ranks"

    def test_a_dead_service_ends_the_asking(self) -> None:
        def dead() -> None:
            raise ServiceDiedError("frontend ended")

        with pytest.raises(ServiceDiedError):
            self.ask(Pending("ConnectError"), alive=dead)
