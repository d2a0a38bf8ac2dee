"""The refit session against fake engines: order, version, and what failure means."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import FakeEngine
from smokestack_payload.background import in_background
from smokestack_payload.errors import ProtocolError, RefitError
from smokestack_payload.refit.admin import EngineFleet, pause_mode
from smokestack_payload.refit.manifest import Expected
from smokestack_payload.refit.session import RefitSession, State

MakeEngine = Callable[[], FakeEngine]
ROUND = ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache", "/resume"]


class Source:
    def metadata(self) -> list[Any]:
        return [type("Meta", (), {"name": "w", "shape": (2,), "dtype": torch.float32})()]


class Transfer:
    """A backend whose collective takes part in the round as vLLM's engines do; `stuck` makes it never end."""

    def __init__(self, fleet: EngineFleet, stuck: bool = False) -> None:
        self.fleet = fleet
        self.stuck = stuck
        self.sent = 0
        self.aborted = 0

    def send_weights(self) -> None:
        self.sent += 1
        self.fleet.start_weight_update()
        reply = in_background("update", self.fleet.update_weights, {"names": ["w"]})
        if self.stuck:
            threading.Event().wait(timeout=30)
        reply.result()
        self.fleet.finish_weight_update()

    def shutdown(self) -> None:
        return

    def abort(self) -> None:
        self.aborted += 1


def test_an_update_that_somebody_left_open_is_named_as_such(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.fail("/start_weight_update", 500, "start_weight_update called while a weight update is already active")
    session, _ = started(engine)
    with pytest.raises(RefitError, match=r"somebody opened a weight update.*never finished.*already active"):
        session.refit(0)


def started(*engines: FakeEngine, stuck: bool = False, limit_s: float = 5.0) -> tuple[RefitSession, Transfer]:
    fleet = EngineFleet([engine.address(1 + index) for index, engine in enumerate(engines)])
    transfer = Transfer(fleet, stuck)
    session = RefitSession(fleet, Source(), Expected({"w": (2,)}, "float32"), limit_s)

    def connect(client: EngineFleet, _: Any) -> Transfer:
        client.init_weight_transfer_engine({"master_port": 1, "rank_offset": 1})
        return transfer

    session.initialise(connect, limit_s)
    return session, transfer


def failure(session: RefitSession, version: int = 1) -> RefitError:
    with pytest.raises(RefitError) as caught:
        session.refit(version)
    return caught.value


def test_a_failed_refit_gives_the_group_up_and_a_good_one_keeps_it(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, transfer = started(engine)
    session.refit(0)
    assert transfer.aborted == 0
    engine.fail("/update_weights", 500, "gone")
    failure(session)
    assert transfer.aborted == 1


def test_a_refit_goes_through_all_phases_in_order_on_every_engine(make_engine: MakeEngine) -> None:
    one, two = make_engine(), make_engine()
    session, _ = started(one, two)
    report = session.refit(3)
    for engine in (one, two):
        assert engine.paths[1:] == ROUND
        assert ("/finish_weight_update", {"weight_version": "3"}) in engine.calls
    assert report.version == 3
    assert set(report.seconds) == {"prepare", "pause", "start", "update", "finish", "reset", "resume", "total"}
    assert report.seconds["total"] >= report.seconds["update"] > 0
    assert report.engines == [one.url, two.url]
    assert session.state is State.READY


def test_each_engine_is_told_its_own_rank_offset(make_engine: MakeEngine) -> None:
    engines = [make_engine(), make_engine()]
    started(*engines)
    assert [engine.calls[0][1]["init_info"]["rank_offset"] for engine in engines] == [1, 2]


def test_an_engine_that_rejects_the_update_ends_the_refit_at_once(make_engine: MakeEngine) -> None:
    """F02: status 500 to the update while the trainer's collective has begun, and will never end by itself."""
    engine = make_engine()
    session, _ = started(engine, stuck=True, limit_s=20)
    engine.fail("/update_weights", 500, "no parameter named w")
    begun = time.monotonic()
    error = failure(session)
    assert time.monotonic() - begun < 5
    assert "status 500" in error.what
    assert "no parameter named w" in error.what
    assert engine.url in error.what
    assert error.poisoned == (engine.url,)
    assert "/resume" not in engine.paths
    assert "/finish_weight_update" not in engine.paths


def test_an_update_that_never_answers_ends_at_the_deadline(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, _ = started(engine, limit_s=0.5)
    engine.hang("/update_weights")
    begun = time.monotonic()
    error = failure(session)
    assert time.monotonic() - begun < 3
    assert "update" in error.what + str(error.found)
    assert error.poisoned == (engine.url,)
    assert "/resume" not in engine.paths


def test_a_collective_that_never_ends_is_abandoned_at_the_deadline(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, _ = started(engine, stuck=True, limit_s=0.5)
    error = failure(session)
    assert "did not end in time" in error.what
    assert "abandoned" in str(error.found)
    assert error.poisoned == (engine.url,)


def test_a_poisoned_session_touches_no_engine_again(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, transfer = started(engine)
    engine.fail("/finish_weight_update", 500, "broken")
    failure(session)
    assert session.state is State.POISONED
    calls, sent = len(engine.calls), transfer.sent
    error = failure(session, 2)
    assert error.poisoned == (engine.url,)
    assert (len(engine.calls), transfer.sent) == (calls, sent)


def test_when_one_of_two_engines_fails_both_stay_paused_and_are_named(make_engine: MakeEngine) -> None:
    good, bad = make_engine(), make_engine()
    session, _ = started(good, bad)
    bad.fail("/update_weights", 500, "out of memory")
    error = failure(session)
    assert set(error.poisoned) == {good.url, bad.url}
    assert f"{bad.url}/update_weights" in error.what
    assert f"{good.url}/update_weights" not in error.what
    assert "/resume" not in good.paths + bad.paths


def is_paused(engine: FakeEngine) -> bool:
    """By the last of the calls that it answered with success."""
    return [path for path in engine.paths if path in {"/pause", "/resume"}][-1] == "/pause"


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("path", ["/start_weight_update", "/finish_weight_update", "/reset_prefix_cache", "/resume"])
def test_a_failure_on_one_leaves_the_others_paused_and_names_it(
    make_engine: MakeEngine, failing: int, path: str
) -> None:
    """Also when it fails to resume, after the other one has: that one is paused again."""
    engines = [make_engine(), make_engine()]
    session, _ = started(*engines)
    engines[failing].fail(path, 500, "no more")
    error = failure(session)
    assert all(is_paused(engine) for engine in engines if engine is not engines[failing])
    assert error.poisoned == tuple(engine.url for engine in engines)
    assert error.where == engines[failing].url
    assert f"{engines[failing].url}{path}: status 500" in error.what
    assert engines[1 - failing].url not in error.what


def test_a_resume_that_is_still_on_its_way_does_not_undo_the_pause(make_engine: MakeEngine) -> None:
    slow, broken = make_engine(), make_engine()
    session, _ = started(slow, broken)
    answered = threading.Event()

    def resume(_: Any) -> tuple[int, Any]:
        answered.wait(timeout=0.3)
        return 200, {}

    slow.on("/resume", resume)
    broken.fail("/resume", 500, "no more")
    assert failure(session).poisoned == (slow.url, broken.url)
    assert slow.paths[-2:] == ["/resume", "/pause"]


def test_an_engine_that_cannot_be_paused_is_not_said_to_be(make_engine: MakeEngine) -> None:
    one, dead = make_engine(), make_engine()
    session, _ = started(one, dead)
    dead.fail("/pause", 500, "dead")
    error = failure(session)
    assert is_paused(one)
    assert error.poisoned == (one.url,)
    assert error.what.endswith(f"; not known to be paused: {dead.url}")


def test_what_was_abandoned_cannot_resume_an_engine_later(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, transfer = started(engine, limit_s=0.5)
    engine.hang("/update_weights")
    failure(session)
    with pytest.raises(RuntimeError, match="has failed before"):
        transfer.fleet.resume()
    assert "/resume" not in engine.paths


def test_a_cache_that_was_not_reset_is_a_failure(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, _ = started(engine)
    engine.on("/reset_prefix_cache", lambda _: (200, {"success": False}))
    assert "reset" in failure(session).what
    assert "/resume" not in engine.paths


def test_weights_that_do_not_fit_are_refused_before_the_pause(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, _ = started(engine)
    session._expected = Expected({"w": (3,)}, "float32")
    before = list(engine.paths)
    error = failure(session)
    assert "nothing was sent" in error.what
    assert error.poisoned == ()
    assert engine.paths == before
    assert session.state is State.READY


def test_a_refit_needs_a_group(make_engine: MakeEngine) -> None:
    session = RefitSession(EngineFleet([make_engine().address()]), Source(), Expected({"w": (2,)}, "float32"), 1)
    assert "session is new" in failure(session).what


def test_a_redirect_is_not_followed(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session, _ = started(engine)
    engine.on("/pause", lambda _: (307, {}))
    assert "status 307" in failure(session).what


def test_an_engine_that_is_gone_is_named(make_engine: MakeEngine, free_port: int) -> None:
    engine = make_engine()
    session, _ = started(engine)
    session._fleet._engines[0].address = type(engine.address())(f"http://127.0.0.1:{free_port}", 1, 1)
    error = failure(session)
    assert "no answer" in error.what
    assert str(free_port) in error.what


@pytest.mark.parametrize(
    ("command", "mode"), [({}, "wait"), ({"pause": "abort"}, "abort"), ({"pause": "keep"}, "keep")]
)
def test_a_command_says_how_engines_are_paused(command: dict[str, str], mode: str, make_engine: MakeEngine) -> None:
    engine = make_engine()
    fleet = EngineFleet([engine.address()])
    fleet.begin("1", 5)
    fleet.pause(pause_mode(command))
    fleet.close()
    assert list(zip(engine.paths, engine.queries, strict=True)) == [("/pause", f"mode={mode}")]


def test_a_way_to_pause_that_there_is_not_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no such way to pause") as caught:
        pause_mode({"pause": "later"})
    assert (caught.value.expected, caught.value.found) == ("wait, abort, keep", "later")


@pytest.mark.parametrize(("order", "path"), [("pause", "/pause"), ("resume", "/resume")])
def test_all_engines_are_paused_and_resumed_at_once(order: str, path: str, make_engine: MakeEngine) -> None:
    """Each engine answers only when the other was asked as well."""
    both = threading.Barrier(2)
    engines = [make_engine(), make_engine()]

    def together(_: Any) -> tuple[int, dict[str, bool]]:
        both.wait(5)
        return 200, {"success": True}

    for engine in engines:
        engine.on(path, together)
    fleet = EngineFleet([engine.address(rank_offset=index + 1) for index, engine in enumerate(engines)])
    fleet.begin("1", 5)
    getattr(fleet, order)()
    fleet.close()
    assert not both.broken
