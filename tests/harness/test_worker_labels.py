"""A run on an engine whose workers alone name a version: judged by their labels, and by all else as any other."""

from __future__ import annotations

from typing import Any

import pytest

from harness.evidence import CHECKS, Expectation, evaluate
from tests.harness.command_run import command_config, passing_command
from tests.harness.event_factory import edited, passing_run, run_config
from tests.harness.evidence_edits import Edit, put_cache, put_engine, red

WANT = Expectation.of(run_config(engine_labels=False))


def unnamed_run() -> list[dict[str, Any]]:
    """As the observer finds such an engine: no output names a version, and the sidecar knows of none."""
    run = passing_run()
    for event in run:
        for engine in event["engines"] if event["kind"] in {"observed", "destroyed", "perturbation.observed"} else ():
            engine["sidecar_label"] = "default"
            engine["spans"] = [None for _ in engine.get("spans", ())]
    return run


def test_the_workers_labels_are_enough_where_there_are_no_others() -> None:
    checks = {check.id: check for check in evaluate(unnamed_run(), WANT)}
    assert checks.keys() == CHECKS.keys()
    skipped = [check for check in checks.values() if check.status != "pass"]
    assert {check.id for check in skipped} == {"policy.versions-spans", "policy.generations-in-flight"}
    assert {(check.status, check.why.split(":")[0]) for check in skipped} == {("skip", "not judged")}
    assert checks["policy.versions-advance"].found == "labels 0 1 2 3 4"


def test_an_engine_that_does_not_count_what_was_cached_is_not_judged_by_it() -> None:
    want = Expectation.of(run_config(counts_cached_tokens=False))
    run = passing_run()
    for version in range(-1, 5):
        run = edited(run, put_cache(version, "again", cached_tokens=0))
    [cache] = [check for check in evaluate(run, want) if check.status != "pass"]
    assert (cache.id, cache.status) == ("policy.cache-reset", "skip")
    assert "does not say how many tokens" in cache.why


@pytest.mark.parametrize("edit", [put_engine(2, engine_label="1"), put_engine(4, engine_label=None)])
def test_they_must_be_right(edit: Edit) -> None:
    found = {check.id: check for check in evaluate(edited(unnamed_run(), edit), WANT)}
    assert red(found) == {"policy.versions-advance"}


def test_an_engine_that_names_versions_has_to_name_the_right_ones() -> None:
    checks = {check.id: check for check in evaluate(unnamed_run(), Expectation.of(run_config()))}
    assert {"policy.versions-advance", "policy.versions-spans"} <= red(checks)


def test_neither_is_a_command_asked_for_what_such_an_engines_sidecar_does_not_know() -> None:
    run = passing_command()
    for event in run:
        for engine in event["engines"] if event["kind"] in {"surveyed", "labels"} else ():
            engine["sidecar_label"] = "default"
    workers = {check.id: check for check in evaluate(run, Expectation.of(command_config(engine_labels=False)))}
    assert not red(workers)
    assert workers["policy.versions-advance"].found == "labels default 0 1 2 3"
    assert red({check.id: check for check in evaluate(run, Expectation.of(command_config()))}) == {
        "policy.versions-advance"
    }
