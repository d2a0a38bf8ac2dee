"""The lower share of the cores that an engine on the CPU gets, as the kernel tells it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness import priority
from harness.clock import SteadyClock
from harness.priority import lower
from harness.process import Process
from tests.harness.scripted import service


def autogroup_of(pid: int) -> int | None:
    file = Path(f"/proc/{pid}/autogroup")
    found = re.search(r"nice (-?\d+)", file.read_text()) if file.exists() else None
    return None if found is None else int(found[1])


def test_a_service_has_the_share_that_its_spec_says(tmp_path: Path) -> None:
    lowered = Process(replace(service(tmp_path, "import time; time.sleep(60)"), nice=10), run_id="r")
    lowered.start()
    try:
        assert os.getpriority(os.PRIO_PROCESS, lowered.pid) == 10
        assert autogroup_of(lowered.pid) in {10, None}
    finally:
        lowered.kill()


def test_a_service_without_one_has_that_of_whoever_started_it(tmp_path: Path) -> None:
    plain = Process(service(tmp_path, "import time; time.sleep(60)"), run_id="r")
    plain.start()
    try:
        assert os.getpriority(os.PRIO_PROCESS, plain.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert autogroup_of(plain.pid) in {0, None}
    finally:
        plain.kill()


def test_a_process_that_has_ended_is_left_to_whoever_looks_after_it() -> None:
    lower(2**22 + 1, 10, SteadyClock())


def test_a_kernel_that_asks_for_patience_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, False, True]
    asked: list[tuple[str, int]] = []

    def set_autogroup(file: Path, nice: int) -> bool:
        asked.append((str(file), nice))
        return answers.pop(0)

    monkeypatch.setattr(priority, "_set_autogroup", set_autogroup)
    monkeypatch.setattr(priority, "POLL_S", 0.001)
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    lower(7, 10, SteadyClock())
    assert asked == [("/proc/7/autogroup", 10)] * 3
    assert not answers
