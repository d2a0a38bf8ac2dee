"""The doctor on compilers: how many at once, with which headers, and of which release."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_builds import LOCKS, STACK, found, machine
from doctor_fakes import GIB

from scripts import jobs
from scripts.doctor import (
    interpreters,
)
from scripts.doctor.subject import Options
from scripts.jobs import Resources


def test_the_jobs_are_those_that_the_build_will_use() -> None:
    small = Resources(8, 12 * GIB)
    chosen = jobs.choose(small, kind="cuda", gpu_archs=1)
    finding = found("jobs", machine(free=small))
    assert finding.found.startswith(
        f"MAX_JOBS={chosen.compilers} NVCC_THREADS={chosen.nvcc_threads} CARGO_BUILD_JOBS={chosen.rust}"
    )


def test_more_jobs_than_memory_are_worth_a_word_with_a_number() -> None:
    finding = found("jobs", machine(free=Resources(8, 16 * GIB)), options=Options(jobs=16))
    assert (finding.status, finding.fix) == ("warn", "./noxw -s build -- --stack prime-rl --jobs 3")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("((3, 12, 1), True, '/usr/include/py', False, True)", "no /usr/include/py/Python.h"),
        ("((3, 11, 1), True, '/usr/include/py', True, True)", "no Python 3.12"),
    ],
)
def test_headers_are_those_of_the_stacks_python(said: str, words: str) -> None:
    made = machine()
    made.answers[f"/usr/bin/python3.12 -I -S -c {interpreters._QUESTION}"] = said
    finding = found("python-headers", made)
    assert (finding.status, finding.found) == ("fail", words)


@pytest.mark.parametrize(
    ("gcc", "gxx", "device", "status"),
    [
        ("12.3.0", "12.3.0", "cpu", "ok"),
        ("12.2.0", "12.2.0", "cpu", "fail"),
        ("12.2.0", "12.2.0", "cuda", "ok"),
        ("10.2.1", "10.2.1", "cuda", "fail"),
        ("13.1.0", "12.4.0", "cuda", "warn"),
        ("", "12.4.0", "cuda", "fail"),
    ],
)
def test_compilers_are_new_enough_and_of_one_release(gcc: str, gxx: str, device: str, status: str) -> None:
    made = machine()
    made.answers.update({"gcc -dumpfullversion": gcc, "g++ -dumpfullversion": gxx})
    stack = replace(STACK, recipes={**STACK.recipes, "vllm": {"source": "vllm", "device": device}})
    assert found("compilers", made, stack).status == status


def test_a_machine_without_compilers_is_told_the_package() -> None:
    finding = found("compilers", machine(programs={"gcc": "/usr/bin/gcc"}))
    assert (finding.found, finding.fix) == ("no g++, make, ld", "sudo apt-get install -y build-essential")


@pytest.mark.parametrize(
    ("name", "question", "good", "old"),
    [
        ("cmake", "cmake --version", "cmake version 3.28.1", "cmake version 3.25.1"),
        ("ninja", "ninja --version", "1.11.1", None),
    ],
)
def test_a_build_tool_that_no_lock_brings_is_looked_for_on_path(
    name: str, question: str, good: str, old: str | None
) -> None:
    made = machine()
    del made.files[f"{LOCKS}/build.lock"]
    assert found(name, made).status == "fail"
    made.answers[question] = good
    assert found(name, made).status == "ok"
    if old is not None:
        made.answers[question] = old
        assert found(name, made).status == "fail"


def test_a_compiler_cache_is_worth_having() -> None:
    made = machine()
    del made.programs["ccache"]
    assert found("compiler-cache", made).fix == "sudo apt-get install -y ccache"
