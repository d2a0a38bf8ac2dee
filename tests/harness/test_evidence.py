"""Every check passes on a sound run, and each can be turned red alone: the unit-level form of the sabotages."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from event_factory import (
    EMBEDDING,
    EMPTY,
    HEAD,
    NORM,
    PROJECTION,
    SERVICES,
    Fields,
    edited,
    failure,
    observed,
    passing_run,
    run_config,
    the,
    without,
)

from harness import events
from harness.evidence import CHECKS, Check, Expectation, evaluate

Edit = Callable[[list[Fields]], object]


def judged(run: list[Fields], **config: Any) -> dict[str, Check]:
    return {check.id: check for check in evaluate(run, Expectation.of(run_config(**config)))}


def red(checks: dict[str, Check]) -> set[str]:
    return {check.id for check in checks.values() if check.status == "fail"}


def put(kind: str, where: dict[str, Any], **values: Any) -> Edit:
    """An edit that overwrites fields of one event."""
    return lambda run: the(run, kind, **where).update(values)


def put_engine(version: int, **values: Any) -> Edit:
    """An edit that overwrites fields of the engine as observed at `version`."""
    return lambda run: the(run, "observed", version=version)["engines"][0].update(values)


def put_probe(version: int, **values: Any) -> Edit:
    return lambda run: the(run, "observed", version=version)["engines"][0]["probes"][0].update(values)


def put_socket(when: str, **values: Any) -> Edit:
    return lambda run: the(run, "listening", when=when)["sockets"][1].update(values)


def add_socket(run: list[Fields], when: str, **values: Any) -> None:
    sockets = the(run, "listening", when=when)["sockets"]
    sockets.append({**sockets[0], **values})


def unlisten(run: list[Fields], *services: str) -> None:
    for event in run:
        if event["kind"] == "listening":
            event["sockets"] = [one for one in event["sockets"] if one["service"] not in services]


def drop(kind: str, **where: Any) -> Edit:
    def change(run: list[Fields]) -> None:
        run[:] = without(run, kind, **where)

    return change


def move_to_end(kind: str, **where: Any) -> Edit:
    return lambda run: run.append(run.pop(run.index(the(run, kind, **where))))


def move_to_start(kind: str, **where: Any) -> Edit:
    return lambda run: run.insert(0, run.pop(run.index(the(run, kind, **where))))


def swap(kind: str, first: dict[str, Any], second: dict[str, Any]) -> Edit:
    def change(run: list[Fields]) -> None:
        a, b = run.index(the(run, kind, **first)), run.index(the(run, kind, **second))
        run[a], run[b] = run[b], run[a]

    return change


def freeze_content(*versions: int) -> Edit:
    """The probes of `versions` are those of the version before, on the engine and on the trainer alike."""

    def change(run: list[Fields]) -> None:
        for version in versions:
            before = the(run, "observed", version=version - 1)["engines"][0]["probes"]
            the(run, "observed", version=version)["engines"][0]["probes"] = before
            the(run, "probe", version=version)["probes"] = before
            if version == LAST:
                the(run, "perturbation.observed", stage="restored")["engines"][0]["probes"] = before

    return change


def trainer_drifts(version: int, by: float) -> Edit:
    def change(run: list[Fields]) -> None:
        probe = the(run, "probe", version=version)["probes"][1]
        probe["prompt_logprobs"] = [value + by for value in probe["prompt_logprobs"]]

    return change


def put_rewards(run: list[Fields], rewards: list[float]) -> None:
    the(run, "step", step=2)["rewards"]["groups"] = [{"prompt": "3+4=", "rewards": rewards}]


def put_all_rewards(run: list[Fields], rewards: list[float]) -> None:
    for event in run:
        if event["kind"] == "step":
            event["rewards"]["groups"] = [{"prompt": "3+4=", "rewards": rewards}]


def same_start(run: list[Fields]) -> None:
    the(run, "observed", version=-1)["engines"] = the(run, "observed", version=0)["engines"]


def restart(run: list[Fields], start_time: float) -> None:
    the(run, "processes", when="end")["processes"][1]["start_time"] = start_time


def unlist(run: list[Fields], service: str) -> None:
    for event in run:
        if event["kind"] == "processes":
            event["processes"] = [item for item in event["processes"] if item["service"] != service]


def put_parameter(event: tuple[str, dict[str, Any]], name: str, **values: Any) -> Edit:
    """An edit that overwrites fields of one parameter that an engine told of."""

    def change(run: list[Fields]) -> None:
        for parameter in the(run, event[0], **event[1])["engines"][0]["ranks"][0]:
            if parameter["name"] == name:
                parameter.update(values)

    return change


def put_observed(event: tuple[str, dict[str, Any]], **values: Any) -> Edit:
    """An edit that overwrites fields of the engine as observed in `event`."""
    return lambda run: the(run, event[0], **event[1])["engines"][0].update(values)


def put_tensors(change: Callable[[list[Any]], object]) -> Edit:
    """An edit of the list of tensors that the trainer announces."""
    return lambda run: change(the(run, "trainer.ready")["tensors"])


def stays(event: tuple[str, dict[str, Any]], name: str, before: tuple[str, dict[str, Any]]) -> Edit:
    """One parameter in `event` is what it was in `before`."""
    return lambda run: put_parameter(event, name, sha256=_parameter(run, before, name)["sha256"])(run)


def one_unperturbed(run: list[Fields]) -> None:
    """Neither engine nor trainer changed it."""
    stays(PERTURBED, NORM, ("observed", {"version": LAST}))(run)
    ours = next(one for one in the(run, "weights", version=LAST)["parameters"] if one["name"] == NORM)
    the(run, "perturbation", stage="perturbed")["parameters"][2].update(ours)


def all_zero(run: list[Fields], name: str) -> None:
    """A parameter that was zero before the destruction, too."""
    shape = _parameter(run, AT_START, name)["shape"]
    zeros = hashlib.sha256(bytes(4 * math.prod(shape))).hexdigest()
    for event in (AT_START, DESTROYED):
        put_parameter(event, name, sha256=zeros)(run)


def _parameter(run: list[Fields], event: tuple[str, dict[str, Any]], name: str) -> dict[str, Any]:
    ranks = the(run, event[0], **event[1])["engines"][0]["ranks"]
    found: dict[str, Any] = next(item for item in ranks[0] if item["name"] == name)
    return found


def announce_late(run: list[Fields]) -> None:
    ready = run.pop(run.index(the(run, "trainer.ready")))
    run.insert(run.index(the(run, "transfer.initialised")) + 1, ready)


def forget_one(run: list[Fields]) -> None:
    the(run, "weights", version=2)["parameters"].pop()


def untold(event: tuple[str, dict[str, Any]], name: str) -> Edit:
    """The engine does not tell of one parameter."""

    def change(run: list[Fields]) -> None:
        [ranks] = [engine["ranks"] for engine in the(run, event[0], **event[1])["engines"]]
        ranks[0] = [parameter for parameter in ranks[0] if parameter["name"] != name]

    return change


def undestroyed(run: list[Fields]) -> None:
    before = the(run, "observed", version=-1)["engines"][0]["probes"]
    the(run, "destroyed")["engines"][0]["probes"] = before


def unperturbed(run: list[Fields]) -> None:
    before = the(run, "observed", version=LAST)["engines"][0]["probes"]
    the(run, "perturbation.observed", stage="perturbed")["engines"][0]["probes"] = before


def shift_restored(run: list[Fields]) -> None:
    """By the smallest amount that a float can tell."""
    probe = the(run, "perturbation.observed", stage="restored")["engines"][0]["probes"][1]
    probe["prompt_logprobs"] = [math.nextafter(value, 0.0) for value in probe["prompt_logprobs"]]


LAST = 4
AT_START: tuple[str, dict[str, Any]] = ("observed", {"version": -1})
AT_2: tuple[str, dict[str, Any]] = ("observed", {"version": 2})
DESTROYED: tuple[str, dict[str, Any]] = ("destroyed", {})
PERTURBED: tuple[str, dict[str, Any]] = ("perturbation.observed", {"stage": "perturbed"})
RESTORED: tuple[str, dict[str, Any]] = ("perturbation.observed", {"stage": "restored"})
OTHER = "0" * 64
LABELS_AND_CONTENT = {
    "policy.versions-advance",
    "policy.weights-digests",
    "policy.weights-match",
    "policy.weights-changed",
}
SOUND = passing_run()
STEP_2 = {"step": 2}
REFIT_4 = {"version": 4}
AFTER = {"when": "after"}
LAST_PROCESSES = the(SOUND, "processes", when="end")["processes"]
WORKER = the(SOUND, "topology")["workers"][0]

SABOTAGES: list[tuple[str, str, Edit]] = [
    ("stack.pins-installed", "another version", put("pins", {}, found={"vllm": "0.31.0", "torch": "2.13.0+cpu"})),
    ("stack.pins-installed", "a package is not there", put("pins", {}, found={"vllm": "0.32.0+cpu"})),
    ("stack.pins-installed", "another binary", put("pins", {}, binaries={"x": {"expected": "a", "found": "b"}})),
    ("stack.pins-installed", "no binary", put("pins", {}, binaries={"x": {"expected": "a", "found": None}})),
    ("stack.pins-installed", "nothing was pinned", put("pins", {}, expected={}, found={})),
    ("stack.pins-installed", "no evidence", drop("pins")),
    ("discovery.topology", "a rank too few", put("topology", {}, world_size=0)),
    ("discovery.topology", "expects other ranks", put("topology", {}, expected_world_size=2)),
    ("discovery.topology", "no worker", put("topology", {}, workers=[])),
    ("discovery.topology", "two records of one engine", put("topology", {}, workers=[WORKER, WORKER])),
    ("discovery.topology", "another model", put("topology", {}, workers=[WORKER | {"model": "other"}])),
    ("discovery.topology", "no evidence", drop("topology")),
    ("training.four-steps", "a step is missing", drop("step", step=3)),
    ("training.four-steps", "the last step is missing", drop("step", step=4)),
    ("training.four-steps", "a refit is missing", drop("refit", version=4)),
    ("training.four-steps", "steps out of order", swap("step", {"step": 2}, {"step": 3})),
    ("training.four-steps", "the loss is no number", put("step", STEP_2, loss="NaN")),
    ("training.four-steps", "the gradient is infinite", put("step", STEP_2, grad_norm=math.inf)),
    ("training.four-steps", "nothing to train on", put("step", STEP_2, tokens=0)),
    ("training.four-steps", "the trainer counts otherwise", put("trainer.done", {}, steps=3)),
    ("training.four-steps", "the trainer never finished", drop("trainer.done")),
    ("training.rewards", "an errored rollout", put("step", STEP_2, errored=1)),
    ("training.rewards", "a reward is no number", lambda r: put_rewards(r, [1.0, math.nan])),
    ("training.rewards", "all right", lambda r: put_all_rewards(r, [1.0, 1.0])),
    ("training.rewards", "all wrong", lambda r: put_all_rewards(r, [0.0, 0.5])),
    ("training.rewards", "no rewards", lambda r: put_rewards(r, [])),
    ("policy.versions-advance", "the engine's label stays", put_engine(2, engine_label="1")),
    ("policy.versions-advance", "the sidecar's label stays", put_engine(2, sidecar_label="1")),
    ("policy.versions-advance", "almost the label", put_engine(2, engine_label="02")),
    ("policy.versions-advance", "no label", put_engine(0, engine_label=None)),
    ("policy.versions-advance", "read before its refit", swap("observed", {"version": 1}, {"version": 2})),
    ("policy.weights-match", "the trainer has other weights", trainer_drifts(3, 0.002)),
    ("policy.weights-match", "another greedy token", put_probe(3, token_ids=[54, 0])),
    ("policy.weights-match", "one greedy token less", put_probe(3, token_ids=[55], logprobs=[-0.385])),
    ("policy.weights-match", "greedy log-probability off", put_probe(3, logprobs=[-0.3, -0.085])),
    ("policy.weights-match", "not a number", put_probe(3, logprobs=["NaN", -0.085])),
    ("policy.weights-match", "no greedy tokens", put_probe(3, token_ids=[], logprobs=[])),
    ("policy.weights-match", "the trainer did not probe", drop("probe", version=3)),
    ("policy.weights-match", "the trainer probed nothing", put("probe", {"version": 3}, probes=[])),
    ("policy.weights-changed", "a refit moved nothing", freeze_content(4)),
    ("policy.weights-changed", "transfer 0 moved nothing", same_start),
    ("policy.weights-covered", "one not sent", put_tensors(lambda t: t.pop())),
    ("policy.weights-covered", "one sent twice", put_tensors(lambda t: t.append(t[0]))),
    ("policy.weights-covered", "one too many", put_tensors(lambda t: t.append(t[0] | {"name": "module.x"}))),
    ("policy.weights-covered", "another type", put_tensors(lambda t: t[0].update(dtype="bfloat16"))),
    ("policy.weights-covered", "another shape", put_tensors(lambda t: t[1].update(shape=[128, 64]))),
    ("policy.weights-covered", "a head of another shape", put_parameter(AT_START, HEAD, shape=[320, 128])),
    ("policy.weights-covered", "announced too late", announce_late),
    ("policy.weights-destroyed", "the probe shows nothing", undestroyed),
    ("policy.weights-destroyed", "one parameter stayed", stays(DESTROYED, PROJECTION, AT_START)),
    ("policy.weights-destroyed", "after transfer 0", move_to_end("destroyed")),
    ("policy.weights-destroyed", "before the first look", move_to_start("destroyed")),
    ("policy.weights-destroyed", "the engine did not tell", put_observed(DESTROYED, ranks=[])),
    ("policy.weights-destroyed", "the engine told of one less", untold(DESTROYED, NORM)),
    ("policy.weights-destroyed", "no evidence", drop("destroyed")),
    ("policy.weights-digests", "one bit in a small tensor", put_parameter(AT_2, NORM, sha256=OTHER)),
    ("policy.weights-digests", "in a repacked one", put_parameter(AT_2, PROJECTION, sha256=OTHER)),
    ("policy.weights-digests", "in the output head alone", put_parameter(AT_2, HEAD, sha256=OTHER)),
    ("policy.weights-digests", "the trainer told nothing", drop("weights", version=2)),
    ("policy.weights-digests", "the trainer knows one less", forget_one),
    ("policy.weights-digests", "the engine told of one less", untold(AT_2, NORM)),
    ("policy.weights-digests", "the engine did not tell", put_engine(2, ranks=[])),
    ("policy.weights-restored", "the perturbation does not show", unperturbed),
    ("policy.weights-digests", "one bit in the perturbed weights", put_parameter(PERTURBED, NORM, sha256=OTHER)),
    ("policy.weights-restored", "a number is a bit off", shift_restored),
    ("policy.weights-restored", "one parameter was not perturbed", one_unperturbed),
    ("policy.weights-restored", "one parameter did not return", put_parameter(RESTORED, EMBEDDING, sha256=OTHER)),
    ("policy.weights-restored", "the engine told of one less", untold(RESTORED, NORM)),
    ("policy.weights-restored", "seen out of order", swap(PERTURBED[0], PERTURBED[1], RESTORED[1])),
    ("policy.weights-restored", "never restored", drop("perturbation.observed", stage="restored")),
    ("policy.weights-restored", "the trainer told nothing", drop("perturbation", stage="restored")),
    ("policy.versions-advance", "the perturbation has the old label", put_observed(PERTURBED, engine_label="4")),
    ("policy.versions-advance", "the label does not return", put_observed(RESTORED, sidecar_label="4-perturbed")),
    ("engine.not-paused", "paused after the restoration", put_observed(RESTORED, paused=True)),
    ("generation.after-update", "server error", put("generation", AFTER, status=500)),
    ("generation.after-update", "no answer", put("generation", AFTER, status=0, completion_tokens=0)),
    ("generation.after-update", "nothing generated", put("generation", AFTER, completion_tokens=0)),
    ("generation.after-update", "ended oddly", put("generation", AFTER, finish_reason="abort")),
    ("generation.after-update", "did not end", put("generation", AFTER, finish_reason=None)),
    ("generation.after-update", "sent too early", move_to_start("generation", when="after")),
    ("generation.after-update", "no evidence", drop("generation", when="after")),
    ("engine.not-paused", "the engine is paused", put_engine(4, paused=True)),
    ("engine.not-paused", "the sidecar says paused", put_engine(4, sidecar_paused=True)),
    ("engine.not-paused", "no answer", put_engine(4, paused=None)),
    (
        "stack.same-processes",
        "another pid",
        put("processes", {"when": "end"}, processes=[LAST_PROCESSES[0] | {"pid": 9}]),
    ),
    ("stack.same-processes", "a pid used again", lambda r: restart(r, start_time=2000.0)),
    ("stack.same-processes", "one is gone", put("processes", {"when": "end"}, processes=LAST_PROCESSES[:-1])),
    ("stack.same-processes", "another topology", put("processes", {"when": "end"}, fingerprint="0" * 64)),
    ("stack.same-processes", "no list at the end", drop("processes", when="end")),
    ("stack.same-processes", "no lists", drop("processes")),
    ("stack.same-processes", "a service is not listed", lambda r: unlist(r, "engine-0")),
    ("stack.same-processes", "one died", put("service.exited", {"service": "engine-0"}, expected=False)),
    ("stack.loopback-only", "every address of the machine", put_socket("start", address="0.0.0.0")),
    ("stack.loopback-only", "every address, IPv6", put_socket("end", address="::")),
    ("stack.loopback-only", "an address of the network", put_socket("end", address="192.168.3.7")),
    ("stack.loopback-only", "a mapped address of the network", put_socket("end", address="::ffff:10.0.0.1")),
    ("stack.loopback-only", "a datagram socket", put_socket("end", address="0.0.0.0", protocol="udp")),
    ("stack.loopback-only", "not an address", put_socket("end", address="localhost.example")),
    ("stack.loopback-only", "later than the start", lambda r: add_socket(r, "end", service="trainer", address="::")),
    ("stack.loopback-only", "a process that hides its sockets", put("listening", {"when": "end"}, unread=[102])),
    ("stack.loopback-only", "a service that listens on nothing", lambda r: unlisten(r, "engine-0")),
    ("stack.loopback-only", "empty lists", lambda r: unlisten(r, *SERVICES)),
    ("stack.loopback-only", "no list at the start", drop("listening", when="start")),
    ("stack.loopback-only", "no list at the end", drop("listening", when="end")),
    ("stack.loopback-only", "no evidence", drop("listening")),
    ("teardown.clean", "a process", put("teardown", {}, survivors=[{"pid": 7, "service": "etcd", "cmd": "etcd"}])),
    ("teardown.clean", "a port", put("teardown", {}, ports=[8002])),
    ("teardown.clean", "a file", put("teardown", {}, files=["tmp/x"])),
    ("teardown.clean", "no evidence", drop("teardown")),
]


def test_a_sound_run_passes_every_check() -> None:
    checks = judged(SOUND)
    assert list(checks) == list(CHECKS)
    assert {check.status for check in checks.values()} == {"pass"}
    assert all(check.found and check.expected and check.why for check in checks.values())


@pytest.mark.parametrize(
    ("check_id", "edit"), [(c, e) for c, _, e in SABOTAGES], ids=[f"{c}: {n}" for c, n, _ in SABOTAGES]
)
def test_one_wrong_thing_turns_exactly_one_check_red(check_id: str, edit: Edit) -> None:
    assert red(judged(edited(SOUND, edit))) == {check_id}


def test_every_check_has_something_that_turns_it_red() -> None:
    assert {check_id for check_id, _, _ in SABOTAGES} == set(CHECKS)


def test_no_events_at_all_pass_nothing() -> None:
    checks = judged([])
    assert red(checks) == set(CHECKS)
    assert all(check.found.startswith("no evidence: ") for check in checks.values())


@pytest.mark.parametrize("kind", sorted({event["kind"] for event in SOUND}))
def test_an_unreadable_event_speaks_against_the_checks_that_rely_on_it(kind: str) -> None:
    def spoil(run: list[Fields]) -> None:
        for event in run:
            if event["kind"] == kind:
                event["surprise"] = 1

    relied_on = {
        "pins",
        "topology",
        "step",
        "refit",
        "trainer.done",
        "probe",
        "observed",
        "generation",
        "processes",
        "listening",
    }
    relied_on |= {"trainer.ready", "destroyed", "weights", "perturbation", "perturbation.observed"}
    checks = judged(edited(SOUND, spoil))
    if kind in relied_on | {"teardown"}:
        assert any(f"({kind}) is unreadable: surprise" in checks[check_id].found for check_id in red(checks))
    elif kind == "service.started":
        assert red(checks) == {"stack.same-processes"}
    else:
        assert not red(checks)


def test_without_a_look_before_transfer_0_nothing_can_be_said_of_what_it_did() -> None:
    checks = judged(without(SOUND, "observed", version=-1))
    assert red(checks) == {"policy.weights-changed", "policy.weights-covered", "policy.weights-destroyed"}


def test_the_digest_of_nothing_is_counted_and_never_equal() -> None:
    """Trap 1: the CPU backend frees what it repacks. Both sides with that digest are still no evidence."""
    found = judged(SOUND)["policy.weights-digests"].found
    assert found.endswith("6 without evidence"), found
    assert "24 equal" in found

    def freed_everywhere(run: list[Fields]) -> None:
        for event in run:
            for engine in event.get("engines", []) if event["kind"] != "refit" else []:
                for parameter in engine["ranks"][0]:
                    parameter["sha256"] = EMPTY
            for parameter in event.get("parameters", []) if event["kind"] in {"weights", "perturbation"} else []:
                parameter.update(sha256=EMPTY, values_sha256=EMPTY)

    check = judged(edited(SOUND, freed_everywhere))["policy.weights-digests"]
    assert (check.status, check.found) == ("fail", "no evidence: no parameter with evidence")


def test_a_parameter_that_was_zero_all_along_cannot_be_destroyed() -> None:
    assert not red(judged(edited(SOUND, lambda run: all_zero(run, NORM)))) - {"policy.weights-digests"}


def test_the_parameter_is_named() -> None:
    """F06 and the one flipped bit: who reads the text knows which tensor to look at."""
    for name in (NORM, PROJECTION, HEAD):
        found = judged(edited(SOUND, put_parameter(AT_2, name, sha256=OTHER)))["policy.weights-digests"].found
        assert found == f"version 2: {name} differs from the trainer's"
    found = judged(edited(SOUND, put_tensors(lambda tensors: tensors.pop(0))))["policy.weights-covered"].found
    assert f"2 parameters not sent: {HEAD}; {EMBEDDING}" in found


def test_every_rank_has_to_tell_what_it_holds() -> None:
    config = run_config(engines=2)
    run = passing_run(config)
    assert judged(run, engines=2)["policy.weights-digests"].status == "pass"
    the(run, "observed", version=3)["engines"][1]["ranks"] = []
    check = judged(run, engines=2)["policy.weights-digests"]
    assert check.found == "no evidence: 1 rank told what they hold at version 3, expected 2"


def test_a_label_without_weights_is_a_matter_of_content_only() -> None:
    """F05: the version is set with no weights moved."""

    def label_only(run: list[Fields]) -> None:
        before = the(run, "observed", version=1)["engines"][0]["probes"]
        the(run, "observed", version=2)["engines"][0]["probes"] = before

    assert red(judged(edited(SOUND, label_only))) == {"policy.weights-match", "policy.weights-changed"}


def test_weights_without_a_label_are_a_matter_of_labels_only() -> None:
    """F05: weights move with no version."""
    edit = put_engine(2, engine_label="1", sidecar_label="1")
    assert red(judged(edited(SOUND, edit))) == {"policy.versions-advance"}


def test_a_missing_observation_is_no_evidence_for_labels_and_content() -> None:
    checks = judged(without(SOUND, "observed", version=3))
    assert red(checks) == LABELS_AND_CONTENT
    assert checks["policy.weights-match"].found == "no evidence: no observation at version 3"


def test_an_engine_that_was_not_probed_is_no_evidence() -> None:
    checks = judged(edited(SOUND, put_engine(3, probes=[])))
    assert red(checks) == {"policy.weights-match", "policy.weights-changed"}


def test_prompts_that_differ_are_not_compared() -> None:
    checks = judged(edited(SOUND, put_probe(3, prompt_ids=[1, 2, 3, 4])))
    assert "did not probe the same prompts" in checks["policy.weights-match"].found
    assert "not the same" in checks["policy.weights-changed"].found


def test_a_difference_of_rounding_is_a_match_and_the_tolerance_is_stated() -> None:
    check = judged(SOUND)["policy.weights-match"]
    assert "within 0.001" in check.expected
    assert check.found.startswith("|diff| <= 1.0e-06, version ")


def test_a_divergence_says_where_and_how_close_the_two_choices_were() -> None:
    found = judged(edited(SOUND, put_probe(3, token_ids=[54, 0])))["policy.weights-match"].found
    assert found == "version 3 probe 0: greedy token 0 is 54, trainer 55 (log-probabilities 1e-07 apart)"


@pytest.mark.parametrize(
    ("margin", "engine_logprob", "status"),
    [
        (5e-4, -0.3851, "pass"),
        (5e-4, -0.39, "fail"),
        (2e-3, -0.3851, "fail"),
        (math.nan, -0.3851, "fail"),
        (None, -0.3851, "fail"),
    ],
    ids=["tie", "not as probable", "clear choice", "margin is no number", "margin not told"],
)
def test_only_a_tie_that_the_trainer_saw_too_excuses_another_greedy_token(
    margin: float | None, engine_logprob: float, status: str
) -> None:
    def choose_the_other(run: list[Fields]) -> None:
        ours = the(run, "probe", version=3)["probes"][0]
        ours["margins"] = [] if margin is None else [margin, 4.0]
        theirs = the(run, "observed", version=3)["engines"][0]["probes"][0]
        theirs.update(token_ids=[54, 17], logprobs=[engine_logprob, -2.0])

    assert judged(edited(SOUND, choose_the_other))["policy.weights-match"].status == status


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_has_more_than_one_address(address: str) -> None:
    assert not red(judged(edited(SOUND, put_socket("end", address=address))))


def test_the_address_where_a_run_was_told_to_listen_is_allowed() -> None:
    run = edited(SOUND, put_socket("end", address="192.168.3.7"))
    assert not red(judged(run, host="192.168.3.7"))
    check = judged(run)["stack.loopback-only"]
    assert check.found == "engine-0 (pid 102) listens on 192.168.3.7:20102, tcp"


def test_a_model_that_is_served_as_it_is_need_not_change_with_transfer_0() -> None:
    run = edited(SOUND, same_start)
    assert red(judged(run, starts_untrained=False)) == set()
    assert red(judged(run)) == {"policy.weights-changed"}


@pytest.mark.parametrize("steps", [1, 8])
def test_any_number_of_steps_is_judged_whole(steps: int) -> None:
    run = passing_run(run_config(steps=steps))
    assert red(judged(run, steps=steps)) == set()
    assert "training.four-steps" in red(judged(run, steps=steps + 1))


def test_every_engine_of_several_has_to_prove_itself() -> None:
    config = {"engines": 2, "tensor_parallel": 2}
    run = passing_run(run_config(**config))
    assert red(judged(run, **config)) == set()
    stale = observed(1, run_config(**config)).engines[1].model_dump(mode="json")
    late = edited(run, lambda r: the(r, "observed", version=2)["engines"].__setitem__(1, stale))
    assert red(judged(late, **config)) == LABELS_AND_CONTENT
    lost = edited(run, lambda r: the(r, "observed", version=4)["engines"].pop())
    assert {"policy.versions-advance", "engine.not-paused"} <= red(judged(lost, **config))


def test_gaps_in_the_rank_order_are_found() -> None:
    config = {"engines": 2, "tensor_parallel": 2}
    run = passing_run(run_config(**config))
    gap = edited(run, lambda r: the(r, "topology")["workers"][1].update(rank_offset=3))
    assert red(judged(gap, **config)) == {"discovery.topology"}


def test_a_stack_that_is_kept_up_is_not_asked_to_be_gone() -> None:
    check = judged(without(SOUND, "teardown"), keep_up=True)["teardown.clean"]
    assert (check.status, check.why) == ("skip", "--keep-up leaves the stack running")


def ended_after(version: int, **error: Any) -> list[Fields]:
    """A run whose refit after `version` failed; it was torn down properly."""
    cut = SOUND.index(the(SOUND, "observed", version=version)) + 1
    teardown = [event for event in SOUND if event["kind"] == "teardown"]
    return [*SOUND[:cut], failure(**error).fields(), *teardown]


def test_what_a_failed_run_did_not_reach_is_not_judged() -> None:
    checks = judged(ended_after(1))
    assert {check_id: check.status for check_id, check in checks.items()} == {
        "stack.pins-installed": "pass",
        "discovery.topology": "pass",
        "training.four-steps": "skip",
        "training.rewards": "pass",
        "policy.versions-advance": "skip",
        "policy.weights-covered": "pass",
        "policy.weights-destroyed": "pass",
        "policy.weights-digests": "skip",
        "policy.weights-restored": "skip",
        "policy.weights-match": "skip",
        "policy.weights-changed": "skip",
        "generation.after-update": "skip",
        "engine.not-paused": "skip",
        "stack.same-processes": "skip",
        "stack.loopback-only": "skip",
        "teardown.clean": "pass",
    }
    assert checks["policy.weights-match"].why == "the run ended in refit: not reached"


def test_what_a_failed_run_did_record_still_counts() -> None:
    run = edited(ended_after(1), put_engine(1, engine_label="default"))
    assert red(judged(run)) == {"policy.versions-advance"}


def test_a_failed_run_owes_a_clean_teardown() -> None:
    check = judged(without(ended_after(1), "teardown"))["teardown.clean"]
    assert (check.status, check.found) == ("fail", "no evidence: no teardown event")


def test_a_run_that_started_nothing_has_nothing_to_tear_down() -> None:
    check = judged([SOUND[0], failure(kind="install", exit_code=20).fields()])["teardown.clean"]
    assert (check.status, check.why) == ("skip", "the run ended in install: nothing was started")


def test_a_long_list_of_faults_is_counted_after_the_first_few() -> None:
    many = {f"package-{index}": "1" for index in range(10)}
    check = judged(edited(SOUND, put("pins", {}, expected=many)))["stack.pins-installed"]
    assert check.found.count("is not installed") == 3
    assert check.found.endswith("; and 7 more")


def test_an_event_in_anothers_name_is_no_evidence() -> None:
    forged = edited(SOUND, put("observed", {"version": 2}, source="trainer"))
    assert red(judged(forged)) == {
        "policy.versions-advance",
        "policy.weights-match",
        "policy.weights-changed",
        "policy.weights-covered",
        "policy.weights-destroyed",
        "policy.weights-digests",
        "policy.weights-restored",
        "engine.not-paused",
    }


def test_a_version_that_was_observed_twice_is_not_believed() -> None:
    config = run_config()
    place = SOUND.index(the(SOUND, "observed", version=2))
    checks = judged([*SOUND[:place], observed(2, config).fields(), *SOUND[place:]])
    assert red(checks) == LABELS_AND_CONTENT
    assert "version 2 was observed twice" in checks["policy.versions-advance"].found


@pytest.mark.parametrize("kind", ["step", "refit", "probe"])
def test_what_the_trainer_says_after_its_end_is_out_of_order(kind: str) -> None:
    again = next(event for event in reversed(SOUND) if event["kind"] == kind)
    checks = judged([*SOUND, again])
    assert f"{kind} came after the trainer was done" in checks["training.four-steps"].found


def test_the_expectation_comes_from_the_configuration_alone(tmp_path: Path) -> None:
    want = Expectation.of(run_config(tmp_path, engines=2, tensor_parallel=2, steps=3))
    assert (want.world_size, list(want.versions), want.starts_untrained) == (4, [0, 1, 2, 3], True)
    assert events.BEFORE_TRANSFER not in want.versions


@pytest.mark.parametrize("kept", [SOUND, without(SOUND, "topology")], ids=["topology pinned", "none pinned"])
def test_a_run_that_discovery_ended_has_no_sound_topology(kept: list[Fields]) -> None:
    """A topology that never came, or changed, is not a check that was merely not reached."""
    ended = failure(kind="discovery", what="the topology changed under the run", found="gone: backend/1", exit_code=31)
    check = judged([*kept, ended.fields()])["discovery.topology"]
    assert check.status == "fail"
    assert "gone: backend/1" in check.found


def test_another_failure_says_nothing_about_the_topology() -> None:
    assert judged([*without(SOUND, "topology"), failure().fields()])["discovery.topology"].status == "skip"
