"""Edits of a sound run's events: each is one way in which a run can be wrong."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

from harness.evidence import Check, Expectation, evaluate
from tests.harness.event_factory import (
    ASTRAY,
    FITTING,
    NORM,
    Fields,
    passing_run,
    run_config,
    the,
    without,
)

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


def put_finished(run: list[Fields], version: int, *, before: int) -> None:
    """The engine's count at the beginning of that observation, so many above what it was at the end of the last one."""
    last, now = (the(run, "observed", version=one)["engines"][0]["finished"] for one in (version - 1, version))
    now["before"] = last["after"] + (before if before >= 0 else now["before"] - last["after"] + before)


def put_count(run: list[Fields], version: int, count: int) -> None:
    the(run, "observed", version=version)["engines"][0]["finished"]["before"] = count


def on_the_second_engine(edit: Edit) -> Edit:
    """The same edit of a run with two engines, made to the second where it would be made to the first."""

    def turn(run: list[Fields]) -> None:
        for event in run:
            if isinstance(event.get("engines"), list) and all(isinstance(one, dict) for one in event["engines"]):
                event["engines"].reverse()

    def change(run: list[Fields]) -> None:
        turn(run)
        edit(run)
        turn(run)

    return change


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


def generated_before_the_restoration(run: list[Fields]) -> None:
    """After the last version's refit, with the perturbed weights."""
    answer = run.pop(run.index(the(run, "generation", when="after")))
    run.insert(run.index(the(run, "perturbation", stage="restored")), answer)


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
                for stage in ("repeated", "restored"):
                    the(run, "perturbation.observed", stage=stage)["engines"][0]["probes"] = before

    return change


def trainer_drifts(version: int, by: float) -> Edit:
    def change(run: list[Fields]) -> None:
        probe = the(run, "probe", version=version)["probes"][1]
        probe["prompt_logprobs"] = [value + by for value in probe["prompt_logprobs"]]

    return change


def put_rewards(run: list[Fields], rewards: list[float]) -> None:
    groups = [{"prompt": "3+4=", "rewards": rewards}, {"prompt": "9+0=", "rewards": [1.0, 1.0]}]
    the(run, "step", step=2)["rewards"]["groups"] = groups if rewards else []


def put_all_rewards(run: list[Fields], rewards: list[float]) -> None:
    for event in run:
        if event["kind"] == "step":
            event["rewards"]["groups"] = [{"prompt": prompt, "rewards": rewards} for prompt in ("3+4=", "9+0=")]


def same_start(run: list[Fields]) -> None:
    the(run, "observed", version=-1)["engines"] = the(run, "observed", version=0)["engines"]


def restart(run: list[Fields], start_time: float) -> None:
    the(run, "processes", when="end")["processes"][1]["start_time"] = start_time


def unlist(run: list[Fields], service: str) -> None:
    for event in run:
        if event["kind"] == "processes":
            event["processes"] = [item for item in event["processes"] if item["service"] != service]


def put_mismatch(step: int, **values: Any) -> Edit:
    return lambda run: the(run, "step", step=step)["mismatch"].update(values)


def rollouts_of(step: int, version: int) -> Edit:
    """The rollouts of `step` are really those of `version`, a neighbour of the one that the trainer believes in."""

    def change(run: list[Fields]) -> None:
        event = the(run, "step", step=step)
        for fit in event["fits"]:
            fit["max_abs"] = list(FITTING if fit["version"] == version else ASTRAY)

    return change


def put_fit(step: int, version: int, gaps: list[Any]) -> Edit:
    def change(run: list[Fields]) -> None:
        (fit,) = [fit for fit in the(run, "step", step=step)["fits"] if fit["version"] == version]
        fit["max_abs"] = gaps

    return change


def compare_fewer(step: int) -> Edit:
    """The last rollout of `step` is compared with no version."""

    def change(run: list[Fields]) -> None:
        for fit in the(run, "step", step=step)["fits"]:
            fit["max_abs"].pop()

    return change


def probe_one_prompt(run: list[Fields]) -> None:
    """Engine and trainer are probed with as many prompts as ever, each of them the first."""
    for event in run:
        for probed in [event, *event.get("engines", ())]:
            if "probes" in probed:
                probed["probes"] = probed["probes"][:1] * 4


def put_cache(version: int, answer: str, **values: Any) -> Edit:
    """An edit of one of the answers to the long prompt at `version`."""
    return lambda run: the(run, "observed", version=version)["engines"][0]["cache"][answer].update(values)


def put_stage_cache(event: tuple[str, dict[str, Any]], answer: str, **values: Any) -> Edit:
    """The same after a refit of the perturbation."""
    return lambda run: the(run, event[0], **event[1])["engines"][0]["cache"][answer].update(values)


def spans(*parts: tuple[str, int, int]) -> list[Fields]:
    return [{"version": version, "start": start, "end": end} for version, start, end in parts]


def mixed(first: str, second: str) -> list[Fields]:
    """Of an output of 64 tokens, under two labels."""
    return spans((first, 0, 40), (second, 40, 64))


def put_in_flight(stage: str, place: int | slice, **values: Any) -> Edit:
    """An edit of the generations around one refit: 0 and 1 are the first engine's, -1 is the frontend's."""

    def change(run: list[Fields]) -> None:
        generations = the(run, "generations.in-flight", stage=stage)["generations"]
        for one in generations[place] if isinstance(place, slice) else [generations[place]]:
            one.update(values)

    return change


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
        ranks = the(run, event[0], **event[1])["engines"][0]["ranks"]
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
REPEATED: tuple[str, dict[str, Any]] = ("perturbation.observed", {"stage": "repeated"})
PERTURBED: tuple[str, dict[str, Any]] = ("perturbation.observed", {"stage": "perturbed"})
RESTORED: tuple[str, dict[str, Any]] = ("perturbation.observed", {"stage": "restored"})
OTHER = "0" * 64
LABELS_AND_CONTENT = {
    "policy.versions-advance",
    "policy.weights-digests",
    "policy.weights-match",
    "policy.weights-changed",
}
ON_OBSERVATIONS = LABELS_AND_CONTENT | {"policy.versions-spans", "policy.cache-reset"}
"""The checks that read what the harness observed at each version."""

SOUND = passing_run()
TWO = {"tensor_parallel": (1, 1)}
"""The configuration of a run with two engines."""
STEP_2 = {"step": 2}
PINNED = the(SOUND, "pins")["expected"]
ONE_GROUP = {"mean": 0.5, "std": 0.5, "groups": [{"prompt": "3+4=", "rewards": [1.0, 0.0]}]}
REFIT_4 = {"version": 4}
AFTER = {"when": "after"}
LAST_PROCESSES = the(SOUND, "processes", when="end")["processes"]
WORKER = the(SOUND, "topology")["workers"][0]
