"""Waiting has one deadline, watches what it waits for, and says what it was waiting for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.clock import Deadline, InterruptibleClock
from harness.errors import DiscoveryError, Interrupted, NotReadyError, ServiceDiedError
from harness.poller import Wait, wait_all, wait_for
from harness.probes import Fatal, Outcome, Pending, Ready


@dataclass
class FakeClock:
    """Time passes only while somebody sleeps."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.slept.append(seconds)
        self.now += seconds


class Answers:
    """A probe with prepared answers, the last one for ever. Each takes `cost_s` on the clock."""

    def __init__(
        self, what: str, answers: Iterable[Outcome], clock: FakeClock | None = None, cost_s: float = 0.0
    ) -> None:
        self.what = what
        self.left = list(answers)
        self.asked = 0
        self._clock, self._cost_s = clock, cost_s

    def check(self) -> Outcome:
        self.asked += 1
        if self._clock is not None:
            self._clock.now += self._cost_s
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def dies_after(rounds: int) -> Callable[[], None]:
    count = iter(range(1_000_000))

    def alive() -> None:
        if next(count) >= rounds:
            raise ServiceDiedError("engine-0 ended although it should run")

    return alive


def test_the_answer_comes_as_soon_as_the_probe_is_ready(clock: FakeClock) -> None:
    probe = Answers("GET /health", [Pending("starting"), Pending("starting"), Ready("up")])
    assert wait_for(probe, deadline=Deadline.after(clock, 10), clock=clock, interval_s=0.5) == Ready("up")
    assert clock.slept == [0.5, 0.5]


def test_a_ready_probe_is_not_waited_for(clock: FakeClock) -> None:
    wait_for(Answers("GET /health", [Ready()]), deadline=Deadline.after(clock, 0), clock=clock)
    assert clock.slept == []


def test_at_the_deadline_the_last_reason_and_the_number_of_asks_are_told(clock: FakeClock) -> None:
    probe = Answers("engine-0 GET /health", [Pending("refused"), Pending("answered 503")])
    with pytest.raises(NotReadyError, match=r"engine-0 GET /health was not ready within 2 s") as raised:
        wait_for(probe, deadline=Deadline.after(clock, 2), clock=clock, interval_s=0.5, log=Path("engine-0.log"))
    assert raised.value.found == "answered 503 (asked 5 times)"
    assert raised.value.expected == "engine-0 GET /health answers"
    assert raised.value.log == Path("engine-0.log")
    assert clock.now == 1002.0


def test_the_last_sleep_does_not_reach_beyond_the_deadline(clock: FakeClock) -> None:
    with pytest.raises(NotReadyError):
        wait_for(Answers("p", [Pending("no")]), deadline=Deadline.after(clock, 1.3), clock=clock, interval_s=1)
    assert clock.slept == [1, pytest.approx(0.3)]


def test_it_is_asked_once_even_when_the_deadline_has_passed(clock: FakeClock) -> None:
    with pytest.raises(NotReadyError) as raised:
        wait_for(Answers("p", [Pending("no")]), deadline=Deadline(clock.now - 1, 5), clock=clock)
    assert raised.value.found == "no (asked once)"


def test_a_fatal_answer_ends_the_wait_at_once(clock: FakeClock) -> None:
    probe = Answers("discovery", [Pending("empty"), Fatal("protocol version 2")])
    with pytest.raises(DiscoveryError, match="waiting longer cannot help") as raised:
        wait_for(probe, deadline=Deadline.after(clock, 60), clock=clock, error=DiscoveryError)
    assert raised.value.found == "protocol version 2"
    assert clock.now < 1001


def test_a_death_ends_the_wait_in_the_same_round(clock: FakeClock) -> None:
    probe = Answers("p", [Pending("no")])
    with pytest.raises(ServiceDiedError):
        wait_for(probe, deadline=Deadline.after(clock, 60), clock=clock, alive=dies_after(3), interval_s=1)
    assert probe.asked == 3


def test_an_answer_of_a_dead_service_does_not_count(clock: FakeClock) -> None:
    """Somebody else may be answering on its port."""
    with pytest.raises(ServiceDiedError):
        wait_for(Answers("p", [Ready()]), deadline=Deadline.after(clock, 60), clock=clock, alive=dies_after(0))


def test_an_interrupt_ends_the_wait() -> None:
    clock = InterruptibleClock()
    clock.interrupt.set()
    with pytest.raises(Interrupted):
        wait_for(Answers("p", [Pending("no")]), deadline=Deadline.after(clock, 60), clock=clock)


def test_several_services_are_waited_for_side_by_side(clock: FakeClock) -> None:
    ready: list[tuple[str, float]] = []
    slow = Answers("engine health", [Pending("importing")] * 4 + [Ready("engine")])
    quick = Answers("frontend health", [Pending("starting"), Ready("frontend")])
    deadline = Deadline.after(clock, 60)
    answers = wait_all(
        [Wait("engine-0", (slow,), deadline), Wait("frontend", (quick,), deadline)],
        clock=clock,
        interval_s=1,
        on_ready=lambda name, seconds: ready.append((name, seconds)),
    )
    assert ready == [("frontend", 1.0), ("engine-0", 4.0)]
    assert answers == {"engine-0": Ready("engine"), "frontend": Ready("frontend")}


def test_the_probes_of_a_service_are_asked_in_order_and_each_until_it_is_ready(clock: FakeClock) -> None:
    first, second = Answers("health", [Pending("no"), Ready()]), Answers("models", [Pending("none"), Ready("tiny")])
    answers = wait_all([Wait("engine-0", (first, second), Deadline.after(clock, 60))], clock=clock)
    assert answers == {"engine-0": Ready("tiny")}
    assert (first.asked, second.asked) == (2, 2)


def test_each_service_has_its_own_deadline_and_the_late_one_is_named(clock: FakeClock) -> None:
    waits = [
        Wait("engine-0", (Answers("engine-0 GET /health", [Pending("importing")]),), Deadline.after(clock, 300)),
        Wait("frontend", (Answers("GET /health", [Pending("refused")]),), Deadline.after(clock, 5)),
    ]
    with pytest.raises(NotReadyError, match=r"frontend \(GET /health\) was not ready within 5 s") as raised:
        wait_all(waits, clock=clock, interval_s=1)
    assert raised.value.where == "frontend"
    assert clock.now == 1005


def test_time_that_passes_in_one_services_probe_counts_for_the_other(clock: FakeClock) -> None:
    waits = [
        Wait("slow", (Answers("slow", [Pending("no")], clock, cost_s=2),), Deadline.after(clock, 300)),
        Wait("short", (Answers("short", [Pending("no")]),), Deadline.after(clock, 5)),
    ]
    with pytest.raises(NotReadyError, match="short"):
        wait_all(waits, clock=clock, interval_s=0.1)
    assert clock.now < 1009


def test_a_service_that_is_ready_is_watched_by_the_common_liveness_check(clock: FakeClock) -> None:
    waits = [
        Wait("etcd", (Answers("etcd", [Ready()]),), Deadline.after(clock, 60)),
        Wait("engine-0", (Answers("engine-0", [Pending("no")]),), Deadline.after(clock, 60)),
    ]
    with pytest.raises(ServiceDiedError):
        wait_all(waits, clock=clock, alive=dies_after(5), interval_s=1)
    assert clock.now == 1005


def test_nothing_to_wait_for_is_ready(clock: FakeClock) -> None:
    assert wait_all([], clock=clock) == {}
    assert wait_all([Wait("trainer", (), Deadline.after(clock, 1))], clock=clock) == {"trainer": Ready()}


def test_two_waits_of_one_name_are_a_mistake(clock: FakeClock) -> None:
    wait = Wait("etcd", (), Deadline.after(clock, 1))
    with pytest.raises(ValueError, match="same name"):
        wait_all([wait, wait], clock=clock)
