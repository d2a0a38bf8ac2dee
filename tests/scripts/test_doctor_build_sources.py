"""The doctor on sources: checkouts that are given, sources that float, variables that change a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from doctor_builds import SOURCES, STACK, found, machine
from doctor_fakes import FakeMachine

from scripts.doctor import (
    build_sources,
)
from scripts.doctor.asking import Answer
from scripts.doctor.facts import StackFacts
from scripts.doctor.subject import Options

GIVEN = Options(sources={"dynamo": Path("/src/dynamo")})


def checkout(**answers: str | Answer) -> FakeMachine:
    """A good checkout of dynamo, but for the questions that are answered otherwise."""
    made = machine()
    made.files["/src/dynamo/.git/HEAD"] = ""
    git = {
        "rev-parse --verify HEAD^{commit}": "b" * 40,
        "submodule status": "",
        "rev-parse --is-shallow-repository": "false",
        "describe --tags --match *[0-9]*": "v1.0",
        "status --porcelain": "",
        **answers,
    }
    made.answers.update({f"git -C /src/dynamo {words}": answer for words, answer in git.items()})
    return made


def test_a_good_checkout_may_be_given() -> None:
    finding = found("sources", checkout(), options=GIVEN)
    assert (finding.status, finding.found) == ("ok", "dynamo given; vllm fetched by full revision, and verified")


@pytest.mark.parametrize(
    ("answers", "status", "word", "fix"),
    [
        (
            {"rev-parse --verify HEAD^{commit}": Answer(128, "fatal: not a git repository")},
            "fail",
            "no git",
            "git clone",
        ),
        ({"rev-parse --verify HEAD^{commit}": "c" * 40}, "fail", "c" * 40, f"fetch origin {'b' * 40}"),
        ({"submodule status": "-abc lib/x"}, "fail", "lacks submodules", "submodule update --init --recursive"),
        ({"rev-parse --is-shallow-repository": "true"}, "fail", "shallow clone", "fetch --unshallow --tags"),
        ({"describe --tags --match *[0-9]*": Answer(128, "fatal: No names found")}, "fail", "no tag", "--tags"),
        ({"status --porcelain": " M a\n?? b\n"}, "warn", "2 changed files", "status --short"),
    ],
)
def test_a_checkout_that_is_not_the_pinned_one_is_named(
    answers: dict[str, str | Answer], status: str, word: str, fix: str
) -> None:
    finding = found("sources", checkout(**answers), options=GIVEN)
    assert finding.status == status
    assert word in finding.found
    assert fix in finding.fix


def test_a_checkout_whose_version_is_pinned_needs_no_tags() -> None:
    made = checkout(**{"rev-parse --is-shallow-repository": "true"})
    pinned = replace(STACK, sources={**SOURCES, "dynamo": replace(SOURCES["dynamo"], version="1.3")})
    assert found("sources", made, pinned, options=GIVEN).status == "ok"


def test_a_source_that_the_stack_does_not_have_or_that_is_not_there_is_refused() -> None:
    assert found("sources", machine(), options=Options(sources={"cuda": Path("/x")})).found == "no source named cuda"
    assert "/src/dynamo is no folder" in found("sources", machine(), options=GIVEN).found


def floating(*names: str) -> StackFacts:
    kept = tuple(name for name in build_sources.NESTED["cuda"] if name not in names)
    return replace(STACK, sources={**SOURCES, "vllm": replace(SOURCES["vllm"], nested=kept)})


def test_what_floats_is_listed_with_where_to_pin_it() -> None:
    finding = found("nested-sources", machine(), floating("cutlass", "qutlass"))
    assert (finding.status, finding.found) == (
        "warn",
        "fetched at what the sources' own build files name: cutlass, qutlass, swagger-ui",
    )
    assert finding.fix == "${EDITOR:-vi} stacks/prime-rl/stack.toml   # [sources.vllm.nested.cutlass]"


def test_what_floats_on_a_closed_network_is_said_so() -> None:
    finding = found("nested-sources", machine(environ={"CARGO_NET_OFFLINE": "true", "UV_OFFLINE": "0"}))
    assert (finding.status, finding.found) == ("warn", "swagger-ui will be fetched, and CARGO_NET_OFFLINE is set")


def test_a_crate_that_fetches_with_curl_needs_curl() -> None:
    made = machine()
    del made.programs["curl"]
    assert found("nested-sources", made).fix == "sudo apt-get install -y curl"


def test_an_engine_whose_sources_are_all_pinned_has_nothing_that_floats() -> None:
    only = replace(STACK, recipes={"vllm": STACK.recipes["vllm"]})
    assert found("nested-sources", machine(), only).status == "ok"


def test_precompiled_parts_and_variables_that_do_not_count_are_named() -> None:
    made = machine(environ={"VLLM_USE_PRECOMPILED": "1", "MAX_JOBS": "4", "CFLAGS": "-O0", "CC": ""})
    assert found("precompiled", made).fix == "unset VLLM_USE_PRECOMPILED"
    assert found("variables", made).found == "set, and not taken over: MAX_JOBS, CFLAGS"
