"""Events that the trainer reports of itself, one by one over its pipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.events.base import Count, Data, Flag, TrainerEvent
from harness.events.observation import Cut, Probe, Stage


class Warmup(Data):
    cached: Flag
    steps: Count
    seconds: float


class AnnouncedTensor(Data):
    """What a refit will bring under `name`."""

    name: str
    dtype: str
    shape: tuple[Count, ...]


class TrainerReady(TrainerEvent):
    """`tensors` are what its refits bring; `tied` has the further names of such tensors, which are not sent."""

    kind: Literal["trainer.ready"] = "trainer.ready"
    parameters: Count
    bytes: Count
    dtype: str
    names_sha256: str
    warmup: Warmup | None
    probe_prompts: tuple[tuple[Count, ...], ...]
    stop_token_ids: tuple[Count, ...]
    tensors: tuple[AnnouncedTensor, ...]
    tied: dict[str, str]


class TransferInitialised(TrainerEvent):
    kind: Literal["transfer.initialised"] = "transfer.initialised"
    world_size: Count
    seconds: float


class RefitSeconds(Data):
    """Seconds of each stage of a refit; `total` is from pause to resume. `prepare` comes before, while all serve."""

    prepare: float = 0.0
    pause: float
    start: float
    update: float
    finish: float
    reset: float
    resume: float
    total: float


class Refit(TrainerEvent):
    """The trainer's own account of a transfer; `bytes` counts the weights once, whatever the number of engines.

    `workers` has what each engine rank said of its own load, by rank and measure, where the backend reports that.
    """

    kind: Literal["refit"] = "refit"
    version: Count
    seconds: RefitSeconds
    bytes: Count
    buckets: Count
    engines: tuple[str, ...]
    workers: dict[str, dict[str, float]] = Field(default_factory=dict)


class ReferenceDigest(Data):
    """A parameter in the trainer's memory: SHA-256 of its bytes, and of its values (-0.0 written as 0.0).

    With a `cut`, of that slice alone: what a rank of an engine has of it.
    """

    name: str
    sha256: str
    values_sha256: str
    cut: Cut | None = None


class TrainerWeights(TrainerEvent):
    """What the trainer holds at `version`; taken from the model, not from what was sent."""

    kind: Literal["weights"] = "weights"
    version: Count
    parameters: tuple[ReferenceDigest, ...]


class Perturbation(TrainerEvent):
    """A refit beside the training: to visibly changed weights, or back to the last version's."""

    kind: Literal["perturbation"] = "perturbation"
    stage: Stage
    label: str
    seconds: float
    parameters: tuple[ReferenceDigest, ...]


class ReferenceProbe(Probe):
    """A probe by the trainer. `margins[i]` is how far `token_ids[i]` was ahead of the runner-up, where it says so."""

    margins: tuple[float, ...] = ()


class TrainerProbe(TrainerEvent):
    """The trainer's own forward pass over the probe prompts with the weights of `version`."""

    kind: Literal["probe"] = "probe"
    version: Count
    probes: tuple[ReferenceProbe, ...]


class Adapter(TrainerEvent):
    """A LoRA adapter for the engines to load from `path`; `probes` are the trainer's with it."""

    kind: Literal["adapter"] = "adapter"
    name: str
    path: str
    layers: Count
    probes: tuple[ReferenceProbe, ...]


class RewardGroup(Data):
    prompt: str
    rewards: tuple[float, ...]


class Rewards(Data):
    mean: float
    std: float
    groups: tuple[RewardGroup, ...]


class Mismatch(Data):
    """Sampling engine against trainer, over the log-probabilities of the sampled tokens."""

    mean_abs: float
    max_abs: float
    k3: float


class RolloutAnswer(Data):
    """One rollout: SHA-256 of its token ids as a JSON list, how many they are, and the seconds of its request."""

    tokens_sha256: str
    tokens: Count
    seconds: float


class VersionFit(Data):
    """For each of some rollouts the largest difference of its log-probabilities from those under `version`'s weights.

    The trainer recomputes them; rollouts come through the frontend, which does not say which version answered.
    """

    version: Count
    max_abs: tuple[float, ...]


class StepSeconds(Data):
    rollout: float
    train: float


class Step(TrainerEvent):
    """One optimizer step. `errors` counts the errored rollouts by reason. `answers` has each rollout in the order of
    the requests, None for one that errored.

    `version_sampled` is what the trainer says. `fits` has that version, and its neighbours as far as there are any.
    """

    kind: Literal["step"] = "step"
    step: Annotated[int, Field(strict=True, ge=1)]
    version_sampled: Count
    loss: float
    grad_norm: float
    tokens: Count
    rollouts: Count
    errored: Count
    errors: dict[str, Count] = Field(default_factory=dict)
    rewards: Rewards
    mismatch: Mismatch
    answers: tuple[RolloutAnswer | None, ...] = ()
    fits: tuple[VersionFit, ...]
    seconds: StepSeconds


class TrainerDone(TrainerEvent):
    kind: Literal["trainer.done"] = "trainer.done"
    steps: Count


class TrainerFault(Data):
    """`poisoned` lists the admin URLs of engines that were left paused and must not serve again."""

    kind: str
    what: str
    expected: str | None = None
    found: str | None = None
    where: str | None = None
    hint: str | None = None
    poisoned: tuple[str, ...] = ()


class TrainerError(TrainerEvent):
    kind: Literal["trainer.error"] = "trainer.error"
    error: TrainerFault
