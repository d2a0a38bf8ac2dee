"""The doctor on memory and processors."""

from __future__ import annotations

import pytest
from doctor_fakes import CPU, CUDA, GIB, look
from doctor_hosts import machine, the, with_files

from scripts.doctor.facts import StackFacts
from scripts.jobs import Resources


@pytest.mark.parametrize(
    ("stack", "purpose", "free", "status"),
    [
        (CPU, "run", 5, "ok"),
        (CPU, "run", 3, "fail"),
        (CPU, "build", 1, "skip"),
        (CUDA, "build", 7, "ok"),
        (CUDA, "build", 5, "fail"),
        (CUDA, None, 10, "fail"),
    ],
)
def test_memory_is_enough_for_the_purpose(stack: StackFacts, purpose: str | None, free: int, status: str) -> None:
    made = machine(free=Resources(8, free * GIB))
    assert look(the("memory"), made, stack, purpose=purpose).status == status


def test_a_containers_limit_is_named_as_what_bounds_it() -> None:
    found = look(the("memory"), machine(free=Resources(8, 2 * GIB)), purpose="run")
    assert found.found == "2.0 GiB free under a control group's limit"


def test_no_swap_is_worth_a_word_where_memory_is_short() -> None:
    small = "MemTotal: 16777216 kB\nSwapTotal: 0 kB\n"
    assert look(the("swap"), with_files(**{"/proc/meminfo": small}), CUDA).status == "warn"
    assert (
        look(the("swap"), with_files(**{"/proc/meminfo": small.replace("16777216", "268435456")}), CUDA).status == "ok"
    )


@pytest.mark.parametrize(
    ("cores", "status", "found"), [(2, "ok", "2 of 8 under a"), (1, "warn", "1 of 8 under a"), (8, "ok", "8")]
)
def test_a_quota_counts_as_the_number_of_processors(cores: int, status: str, found: str) -> None:
    result = look(the("cores"), machine(free=Resources(cores, 8 * GIB)))
    assert result.status == status
    assert result.found.startswith(found)
