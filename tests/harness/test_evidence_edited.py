"""Each check can be turned red alone: the unit-level form of the sabotages."""

from __future__ import annotations

import math
from functools import cache

import pytest

from harness.evidence import CHECKS
from tests.harness.event_factory import (
    EMBEDDING,
    FITTING,
    HEAD,
    NORM,
    PROJECTION,
    SERVICES,
    Fields,
    edited,
    passing_run,
    run_config,
)
from tests.harness.evidence_edits import (
    AFTER,
    AT_2,
    AT_START,
    DESTROYED,
    LAST_PROCESSES,
    ONE_GROUP,
    OTHER,
    PERTURBED,
    PINNED,
    REPEATED,
    RESTORED,
    SOUND,
    STEP_2,
    WORKER,
    Edit,
    add_socket,
    announce_late,
    compare_fewer,
    drop,
    forget_one,
    freeze_content,
    generated_before_the_restoration,
    judged,
    mixed,
    move_to_end,
    move_to_start,
    on_the_second_engine,
    one_unperturbed,
    probe_one_prompt,
    put,
    put_all_rewards,
    put_cache,
    put_count,
    put_engine,
    put_finished,
    put_fit,
    put_in_flight,
    put_mismatch,
    put_observed,
    put_parameter,
    put_probe,
    put_rewards,
    put_socket,
    put_stage_cache,
    put_tensors,
    red,
    restart,
    rollouts_of,
    same_start,
    shift_restored,
    spans,
    stays,
    swap,
    trainer_drifts,
    undestroyed,
    unlist,
    unlisten,
    unperturbed,
    untold,
)

SABOTAGES: list[tuple[str, str, Edit]] = [
    ("stack.pins-installed", "another version", put("pins", {}, found={"vllm": "0.31.0", "torch": "2.13.0+cpu"})),
    ("stack.pins-installed", "a package is not there", put("pins", {}, found={"vllm": "0.32.0+cpu"})),
    ("stack.pins-installed", "one that is not pinned", put("pins", {}, found={**PINNED, "left-pad": "1.0"})),
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
    ("training.rewards", "a reward too few", lambda r: put_rewards(r, [1.0])),
    ("training.rewards", "fewer rollouts than configured", put("step", STEP_2, rollouts=2, rewards=ONE_GROUP)),
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
    ("training.rollouts-served", "the engine answered none", lambda r: put_finished(r, 2, before=0)),
    ("training.rollouts-served", "it answered fewer than came back", lambda r: put_finished(r, 2, before=-1)),
    ("training.rollouts-served", "it began to count anew", lambda r: put_count(r, 2, 3)),
    ("training.rollouts-served", "no count", put_engine(2, finished=None)),
    ("policy.weights-match", "no greedy tokens", put_probe(3, token_ids=[], logprobs=[])),
    ("policy.weights-match", "the trainer did not probe", drop("probe", version=3)),
    ("policy.weights-match", "the same prompt four times", probe_one_prompt),
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
    ("policy.versions-advance", "the perturbation has the old label", put_observed(PERTURBED, engine_label="4")),
    ("policy.versions-advance", "the label does not return", put_observed(RESTORED, sidecar_label="4-perturbed")),
    ("engine.not-paused", "paused after the restoration", put_observed(RESTORED, paused=True)),
    ("policy.mismatch", "the largest difference", put_mismatch(3, max_abs=2e-3)),
    ("policy.mismatch", "the mean difference", put_mismatch(3, mean_abs=2e-4)),
    ("policy.mismatch", "the divergence", put_mismatch(3, k3=2e-8)),
    ("policy.mismatch", "not a number", put_mismatch(3, k3="NaN")),
    ("policy.mismatch", "rollouts of the version before", rollouts_of(step=3, version=1)),
    ("policy.mismatch", "rollouts of the version after", rollouts_of(step=3, version=3)),
    ("policy.mismatch", "rollouts of no version", put_fit(3, 2, [0.3] * 4)),
    ("policy.mismatch", "one rollout of another version", put_fit(3, 2, [*FITTING[1:], 0.4])),
    ("policy.mismatch", "a fit that is no number", put_fit(3, 2, [*FITTING[1:], "NaN"])),
    ("policy.mismatch", "rollouts that fit two versions", put_fit(3, 1, [*FITTING])),
    ("policy.mismatch", "not compared", put("step", {"step": 3}, fits=[])),
    ("policy.mismatch", "one rollout less compared than came back", compare_fewer(3)),
    ("policy.mismatch", "compared with other rollouts", put_fit(3, 1, [0.3])),
    ("policy.cache-reset", "still cached after a refit", put_cache(2, "first", cached_tokens=256)),
    ("policy.cache-reset", "another answer than without the cache", put_cache(2, "first", logprob=-0.26)),
    ("policy.cache-reset", "an answer that is no number", put_cache(2, "first", logprob="NaN")),
    ("policy.cache-reset", "nothing was ever cached", put_cache(2, "again", cached_tokens=0)),
    ("policy.cache-reset", "one block was cached", put_cache(-1, "again", cached_tokens=128)),
    ("policy.cache-reset", "the reference is none", put_cache(2, "reference", cached_tokens=256)),
    ("policy.cache-reset", "not looked at", put_engine(3, cache=None)),
    ("policy.cache-reset", "not looked at after a repetition", put_observed(REPEATED, cache=None)),
    ("policy.cache-reset", "still cached after an abort", put_stage_cache(REPEATED, "first", cached_tokens=256)),
    ("policy.cache-reset", "still cached after a keep", put_stage_cache(RESTORED, "first", cached_tokens=256)),
    ("policy.versions-spans", "a probe of another version", put_engine(3, spans=[spans(("2", 0, 2))] * 2)),
    ("policy.versions-spans", "a probe of two versions", put_engine(3, spans=[spans(("2", 0, 1), ("3", 1, 2))])),
    ("policy.versions-spans", "a probe that names no version", put_engine(3, spans=[None, None])),
    ("policy.versions-spans", "no output at a version", put_engine(3, spans=[])),
    ("policy.versions-spans", "another version than sampled", put("step", {"step": 3}, version_sampled=1)),
    (
        "policy.generations-in-flight",
        "aborted ones go on",
        put_in_flight("repeated", 0, tokens=64, finish_reason="length"),
    ),
    (
        "policy.generations-in-flight",
        "the frontend's go on",
        put_in_flight("repeated", -1, tokens=64, finish_reason="length"),
    ),
    (
        "policy.generations-in-flight",
        "mixed though waited for",
        put_in_flight("perturbed", 0, spans=mixed("4-repeated", "4-perturbed")),
    ),
    (
        "policy.generations-in-flight",
        "kept and split twice",
        put_in_flight("restored", 0, spans=spans(("4-perturbed", 0, 9), ("4", 9, 20), ("4-perturbed", 20, 64))),
    ),
    (
        "policy.generations-in-flight",
        "of a version long gone",
        put_in_flight("restored", 0, spans=spans(("4-repeated", 0, 64))),
    ),
    ("policy.generations-in-flight", "a version back", put_in_flight("restored", 0, spans=mixed("4", "4-perturbed"))),
    (
        "policy.generations-in-flight",
        "tokens of no version",
        put_in_flight("restored", 0, spans=spans(("4-perturbed", 0, 9))),
    ),
    (
        "policy.generations-in-flight",
        "a gap",
        put_in_flight("restored", 0, spans=spans(("4-perturbed", 0, 9), ("4", 10, 64))),
    ),
    ("policy.generations-in-flight", "the engine names none", put_in_flight("perturbed", 0, spans=None)),
    ("policy.generations-in-flight", "cut short though waited for", put_in_flight("perturbed", -1, tokens=63)),
    (
        "policy.generations-in-flight",
        "a kept one is lost",
        put_in_flight("restored", -1, status=499, error="cancelled"),
    ),
    ("policy.generations-in-flight", "a broken answer", put_in_flight("restored", -1, tokens=0, error="an end")),
    (
        "policy.generations-in-flight",
        "ended before the abort",
        put_in_flight("repeated", slice(2), tokens=64, finish_reason="length", ended_s=0.1, spans=spans(("4", 0, 64))),
    ),
    (
        "policy.generations-in-flight",
        "aborted before they began",
        put_in_flight("repeated", slice(2), tokens=0, spans=[]),
    ),
    ("policy.generations-in-flight", "ended before the wait", put_in_flight("perturbed", slice(2), ended_s=0.09)),
    (
        "policy.generations-in-flight",
        "ended before they were kept",
        put_in_flight("restored", slice(2), spans=spans(("4-perturbed", 0, 64))),
    ),
    (
        "policy.generations-in-flight",
        "begun after the refit",
        put_in_flight("restored", slice(2), spans=spans(("4", 0, 64))),
    ),
    (
        "policy.generations-in-flight",
        "let finish though held",
        put_in_flight("restored", 0, ended_s=0.3, spans=spans(("4-perturbed", 0, 64))),
    ),
    (
        "policy.generations-in-flight",
        "of the next version though waited for",
        put_in_flight("perturbed", 0, spans=spans(("4-perturbed", 0, 64))),
    ),
    ("policy.generations-in-flight", "nobody waited for them", put_in_flight("perturbed", slice(3), ended_s=9.0)),
    ("policy.generations-in-flight", "aborted after the refit", put_in_flight("repeated", -1, ended_s=9.0)),
    ("policy.generations-in-flight", "aborted by the hold", put_in_flight("repeated", slice(2), ended_s=0.005)),
    ("policy.generations-in-flight", "cut short by itself", put_in_flight("repeated", 0, finish_reason="stop")),
    ("policy.generations-in-flight", "the frontend's had not begun", put_in_flight("restored", -1, seen=0)),
    ("policy.weights-digests", "a parameter of the repetition is another", put_parameter(REPEATED, NORM, sha256=OTHER)),
    ("policy.weights-match", "the repetition was not probed", put_observed(REPEATED, probes=[])),
    ("policy.weights-restored", "never repeated", drop("perturbation.observed", stage="repeated")),
    ("policy.generations-in-flight", "nothing through the frontend", put_in_flight("perturbed", -1, ended_s=0.05)),
    (
        "policy.generations-in-flight",
        "none at all",
        put("generations.in-flight", {"stage": "perturbed"}, generations=[]),
    ),
    ("policy.generations-in-flight", "no account of one refit", drop("generations.in-flight", stage="repeated")),
    (
        "policy.generations-in-flight",
        "another way of pausing",
        put("generations.in-flight", {"stage": "perturbed"}, pause="keep"),
    ),
    ("policy.versions-advance", "the repetition has the old label", put_observed(REPEATED, sidecar_label="4")),
    ("generation.after-update", "server error", put("generation", AFTER, status=500)),
    ("generation.after-update", "no answer", put("generation", AFTER, status=0, completion_tokens=0)),
    ("generation.after-update", "nothing generated", put("generation", AFTER, completion_tokens=0)),
    ("generation.after-update", "ended oddly", put("generation", AFTER, finish_reason="abort")),
    ("generation.after-update", "did not end", put("generation", AFTER, finish_reason=None)),
    ("generation.after-update", "sent too early", move_to_start("generation", when="after")),
    ("generation.after-update", "sent before the restoration", generated_before_the_restoration),
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


@pytest.mark.parametrize(
    ("check_id", "edit"), [(c, e) for c, _, e in SABOTAGES], ids=[f"{c}: {n}" for c, n, _ in SABOTAGES]
)
def test_one_wrong_thing_turns_exactly_one_check_red(check_id: str, edit: Edit) -> None:
    assert red(judged(edited(SOUND, edit))) == {check_id}


OF_ONE_ENGINE = [
    (check_id, name, edit)
    for check_id, name, edit in SABOTAGES
    if check_id.startswith(("policy.", "engine.", "training.rollouts"))
    and name
    not in {
        "a refit moved nothing",
        "transfer 0 moved nothing",
        "one parameter was not perturbed",
    }
]
"""Edits of what one engine shows. The others change the trainer's side as well, which every engine is compared with."""


TWO_ENGINES = [(1, 1), (2, 1), (1, 2)]


@cache
def sound_of_two(sizes: tuple[int, ...]) -> list[Fields]:
    return passing_run(run_config(tensor_parallel=sizes))


@pytest.mark.parametrize("sizes", TWO_ENGINES, ids=str)
def test_a_sound_run_with_two_engines_has_no_red_check(sizes: tuple[int, ...]) -> None:
    assert red(judged(sound_of_two(sizes), tensor_parallel=sizes)) == set()


@pytest.mark.parametrize(
    ("check_id", "edit"), [(c, e) for c, _, e in OF_ONE_ENGINE], ids=[f"{c}: {n}" for c, n, _ in OF_ONE_ENGINE]
)
@pytest.mark.parametrize("sizes", TWO_ENGINES, ids=str)
def test_one_wrong_thing_on_the_second_engine_alone_does_so_too(
    sizes: tuple[int, ...], check_id: str, edit: Edit
) -> None:
    assert red(judged(edited(sound_of_two(sizes), on_the_second_engine(edit)), tensor_parallel=sizes)) == {check_id}


def test_every_check_has_something_that_turns_it_red() -> None:
    assert {check_id for check_id, _, _ in SABOTAGES} == set(CHECKS)
