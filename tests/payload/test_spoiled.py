"""What is wrong with the tensors, the rollouts and the reports of each sabotage, and that all else is as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from conftest import STEPS, FakeEngine, plan, settings
from smokestack_payload import sabotage
from smokestack_payload.rollout import Sampler
from smokestack_payload.spoiled import (
    EVERY,
    ErringSampler,
    HalfSource,
    SpoiledSource,
    StaleStepper,
    one_corrupted,
    swapped,
)
from smokestack_payload.step import Stepper


@dataclass
class Meta:
    name: str


class Source:
    """Four tensors, two of them large and of equal shape, one small."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        shapes = {"up": (4, 3), "norm": (2,), "down": (4, 3), "head": (5, 5)}
        self.tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}

    def metadata(self) -> list[Meta]:
        return [Meta(name) for name in self.tensors]

    def __iter__(self) -> Any:
        return iter(self.tensors.items())


def test_one_bit_of_the_smallest_tensor_is_flipped_and_the_trainers_own_stays() -> None:
    source = Source()
    before = {name: tensor.clone() for name, tensor in source}
    spoiled = dict(one_corrupted(list(source)))
    changed = spoiled["norm"].view(torch.int32) ^ before["norm"].view(torch.int32)
    assert changed.tolist() == [1, 0]
    for name, tensor in source:
        assert torch.equal(tensor, before[name])
        assert name == "norm" or torch.equal(spoiled[name], before[name])


def test_two_tensors_of_equal_shape_change_places_under_the_same_names_in_the_same_order() -> None:
    source = Source()
    spoiled = swapped(list(source))
    assert [name for name, _ in spoiled] == ["up", "norm", "down", "head"]
    assert torch.equal(dict(spoiled)["up"], source.tensors["down"])
    assert torch.equal(dict(spoiled)["down"], source.tensors["up"])
    assert torch.equal(dict(spoiled)["head"], source.tensors["head"])


def test_a_spoiled_source_strikes_when_it_should_and_announces_the_truth() -> None:
    source, now = Source(), [False]
    spoiled = SpoiledSource(source, swapped, lambda: now[0])
    assert [meta.name for meta in spoiled.metadata()] == [meta.name for meta in source.metadata()]
    assert all(torch.equal(tensor, source.tensors[name]) for name, tensor in spoiled)
    now[0] = True
    assert not torch.equal(dict(spoiled)["up"], source.tensors["up"])


def test_half_the_names_are_announced_and_sent() -> None:
    half = HalfSource(Source())
    assert [meta.name for meta in half.metadata()] == ["up", "norm"] == [name for name, _ in half]
    source = Source()
    assert isinstance(sabotage.spoiled_source(source, settings(sabotage.HALF_THE_NAMES)), HalfSource)
    assert sabotage.spoiled_source(source, settings(None)) is source


@pytest.mark.parametrize("name", [sabotage.ONE_CORRUPTED_TENSOR, sabotage.SWAPPED_TENSORS])
def test_only_the_last_version_gets_wrong_tensors(name: str, make_engine: Callable[[], FakeEngine]) -> None:
    chosen, source, given = settings(name), Source(), []
    fleet = sabotage.fleet_of(plan(make_engine()), chosen)
    sabotage.spoiled_connector(lambda _fleet, spoiled: given.append(spoiled), chosen)(fleet, source)

    def wrong(label: str) -> bool:
        fleet.begin(label, 5)
        return any(not torch.equal(tensor, source.tensors[name]) for name, tensor in given[0])

    assert [wrong(label) for label in ("0", "1", "2", "2-perturbed", "2")] == [False, False, True, False, True]


def test_one_rollout_of_each_step_asks_for_nobodys_model() -> None:
    options: dict[str, Any] = {
        "frontend_url": "http://127.0.0.1:1",
        "model": "tiny",
        "vocab_size": 9,
        "max_new_tokens": 1,
        "stop_token_ids": [],
        "request_s": 1,
        "total_s": 1,
    }
    erring, real = ErringSampler(**options), Sampler(**options)
    for first in (20260, 1000):
        seeds = range(first, first + EVERY)
        strange = [seed for seed in seeds if erring._body([1], seed) != real._body([1], seed)]
        assert [erring._body([1], seed)["model"] for seed in strange] == ["nobody"]
    assert sabotage.sampler_of(settings(sabotage.ERRORED_ROLLOUTS)) is ErringSampler
    assert sabotage.sampler_of(settings(None)) is Sampler


def test_a_suppressed_update_learns_nothing_and_changes_nothing_else() -> None:
    chosen = settings(sabotage.SUPPRESSED_UPDATE)
    assert sabotage.spoiled_settings(chosen).grpo.learning_rate == 0.0
    assert sabotage.spoiled_settings(chosen).deadlines == chosen.deadlines
    assert sabotage.spoiled_settings(settings(None)) == settings(None)


def test_miscounted_steps_are_one_too_few() -> None:
    assert sabotage.told_steps(settings(sabotage.MISCOUNTED_STEPS)) == STEPS - 1
    assert sabotage.told_steps(settings(None)) == STEPS


def test_stale_rollouts_are_those_of_the_first_step_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(Stepper, "_sampled", lambda _self, step: asked.append(step) or (f"prompts {step}", step))
    stepper = StaleStepper.__new__(StaleStepper)
    assert [stepper._sampled(step) for step in (1, 2, 3)] == [("prompts 1", 1)] * 3
    assert asked == [1, 2, 3], "the engines are asked for those of each step"
    assert sabotage.stepper_of(settings(sabotage.STALE_ROLLOUTS)) is StaleStepper
    assert sabotage.stepper_of(settings(None)) is Stepper


def test_the_last_steps_samples_are_misnamed() -> None:
    assert [sabotage.told_version(step, settings(sabotage.MISNAMED_SAMPLES)) for step in (1, STEPS)] == [0, STEPS - 2]
    assert [sabotage.told_version(step, settings(None)) for step in (1, STEPS)] == [0, STEPS - 1]
