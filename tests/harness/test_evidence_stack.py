"""The checks of the stack itself: topology, processes, sockets and teardown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.event_factory import (
    Fields,
    edited,
    failure,
    passing_run,
    run_config,
    the,
    without,
)
from tests.harness.evidence_edits import (
    SOUND,
    TWO,
    Edit,
    judged,
    put,
    put_socket,
    red,
    unlisten,
)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_has_more_than_one_address(address: str) -> None:
    assert not red(judged(edited(SOUND, put_socket("end", address=address))))


def test_the_address_where_a_run_was_told_to_listen_is_allowed() -> None:
    run = edited(SOUND, put_socket("end", address="192.168.3.7"))
    assert judged(run, host="192.168.3.7")["stack.loopback-only"].status == "pass"
    check = judged(run)["stack.loopback-only"]
    assert check.found == "engine-0 (pid 102) listens on 192.168.3.7:20102, tcp"


def test_gaps_in_the_rank_order_are_found() -> None:
    config = {"tensor_parallel": (2, 2)}
    run = passing_run(run_config(**config))
    gap = edited(run, lambda r: the(r, "topology")["workers"][1].update(rank_offset=3))
    assert red(judged(gap, **config)) == {"discovery.topology"}


def test_a_stack_that_is_kept_up_is_not_asked_to_be_gone() -> None:
    check = judged(without(SOUND, "teardown"), keep_up=True)["teardown.clean"]
    assert (check.status, check.why) == ("skip", "--keep-up leaves the stack running")


@pytest.mark.parametrize("kept", [SOUND, without(SOUND, "topology")], ids=["topology pinned", "none pinned"])
def test_a_run_that_discovery_ended_has_no_sound_topology(kept: list[Fields]) -> None:
    """A topology that never came, or changed, is not a check that was merely not reached."""
    ended = failure(kind="discovery", what="the topology changed under the run", found="gone: backend/1", exit_code=31)
    check = judged([*kept, ended.fields()])["discovery.topology"]
    assert check.status == "fail"
    assert "gone: backend/1" in check.found


def test_another_failure_says_nothing_about_the_topology() -> None:
    assert judged([*without(SOUND, "topology"), failure().fields()])["discovery.topology"].status == "skip"


@pytest.mark.parametrize("index", [0, 1])
def test_an_engine_of_another_size_than_configured_is_named_although_the_sum_is_right(index: int) -> None:
    sizes = {"tensor_parallel": (2, 1)}
    run = passing_run(run_config(tensor_parallel=(1, 2)))
    check = judged(run, **sizes)["discovery.topology"]
    assert check.status == "fail"
    assert f"engine-{index} has" in check.found


def of_service(kind: str, when: str, service: str, **values: Any) -> Edit:
    """An edit of one service's record in a list of processes or of sockets."""
    field = {"processes": "processes", "listening": "sockets"}[kind]
    return lambda run: next(one for one in the(run, kind, when=when)[field] if one["service"] == service).update(values)


@pytest.mark.parametrize(
    ("check_id", "edit", "said"),
    [
        ("stack.same-processes", of_service("processes", "end", "engine-1", pid=9), "engine-1 pid 201 is gone"),
        ("stack.same-processes", of_service("processes", "end", "sidecar-1", start_time=1.0), "sidecar-1 pid 301"),
        ("stack.same-processes", put("service.exited", {"service": "engine-1"}, expected=False), "engine-1 exited"),
        ("stack.loopback-only", lambda run: unlisten(run, "engine-1"), "engine-1 (pid 201) has no socket"),
        ("stack.loopback-only", of_service("listening", "end", "sidecar-1", address="0.0.0.0"), "sidecar-1 (pid 301)"),
        ("discovery.topology", lambda run: the(run, "topology")["workers"].pop(), "engine-1 is not listed"),
        ("discovery.topology", lambda run: the(run, "topology")["workers"][1].update(model="x"), "engine-1 serves x"),
        ("discovery.topology", lambda run: the(run, "topology")["workers"][0].update(rank_offset=1), "offset is 1"),
    ],
)
def test_what_is_wrong_with_the_second_engines_processes_is_named(check_id: str, edit: Edit, said: str) -> None:
    checks = judged(edited(passing_run(run_config(**TWO)), edit), **TWO)
    assert red(checks) == {check_id}
    assert said in checks[check_id].found
