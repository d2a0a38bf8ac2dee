"""What the harness itself observed of the stack: its weights, labels and answers, and how long these took."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.events.base import Count, Data, Flag, ObserverEvent, Whole

Stage = Literal["repeated", "perturbed", "restored"]
"""Refits after the last step: the same weights under another label, visibly changed ones, then the last version's."""

BEFORE_TRANSFER = -1
"""The `version` of the observation made before transfer 0."""


class Probe(Data):
    """Greedy continuation of a fixed prompt, and the prompt under teacher forcing.

    `logprobs[i]` belongs to `token_ids[i]`; `prompt_logprobs[i]` to `prompt_ids[i + 1]`. Natural logarithms.
    """

    prompt_ids: tuple[Count, ...]
    token_ids: tuple[Count, ...]
    logprobs: tuple[float, ...]
    prompt_logprobs: tuple[float, ...]


class Cut(Data):
    """What one rank of an engine has of a parameter: `start` (included) to `stop` along dimension `dim`."""

    dim: Count
    start: Count
    stop: Count

    def __str__(self) -> str:
        return f"{self.start}:{self.stop} of dimension {self.dim}"


class HeldParameter(Data):
    """One parameter in a rank's model, in the trainer's terms.

    `how` says whose digest this is: of a tensor of its own (`held`: vLLM's `/weight_checker`; `whole`: our worker
    extension's), of rows of a larger one (`part`), of the values that the layer multiplies by (`multiplied`: the
    backend has repacked it), of none (`sharded`). None, or the digest of nothing, is no evidence. `cut` is the slice
    that the rank has, None for all of it; `shape` is the slice's own.
    """

    name: str
    how: Literal["held", "whole", "part", "multiplied", "sharded"]
    dtype: str
    shape: tuple[Count, ...] | None
    sha256: str | None
    cut: Cut | None = None


class Span(Data):
    """Tokens `start` to `end` (exclusive) of one output were generated under the version label `version`."""

    version: str
    start: Count
    end: Count


class CacheAnswer(Data):
    """The first greedy token after a prompt: its log-probability, and how much of the prompt came from the cache."""

    cached_tokens: Count
    logprob: float


class CacheProbe(Data):
    """A prompt of several blocks of the KV cache, asked before anything else of one observation.

    `first` is the first answer, `again` its repetition, and `reference` was computed without reading the cache.
    """

    prompt_tokens: Count
    first: CacheAnswer
    again: CacheAnswer
    reference: CacheAnswer


class FinishedRequests(Data):
    """How many requests an engine had finished when an observation of it began, and when it ended (it asks some)."""

    before: Count
    after: Count


class EngineObservation(Data):
    """What the harness itself saw of one engine and its sidecar. None: they gave no answer.

    `sidecar_paused` is for stacks whose sidecar reports it apart from its engine. `ranks` has what each rank's model
    holds; none where the engine does not tell. `spans` has for each probe which version label its tokens were generated
    under, None where the engine told none.
    """

    admin_url: str
    system_url: str
    engine_label: str | None
    sidecar_label: str | None
    paused: Flag | None
    sidecar_paused: Flag | None = None
    probes: tuple[Probe, ...]
    ranks: tuple[tuple[HeldParameter, ...], ...] = ()
    spans: tuple[tuple[Span, ...] | None, ...] = ()
    cache: CacheProbe | None = None
    finished: FinishedRequests | None = None


class Observed(ObserverEvent):
    """The stack as observed while the trainer waits at `version` (`BEFORE_TRANSFER` before transfer 0)."""

    kind: Literal["observed"] = "observed"
    version: Annotated[int, Field(strict=True, ge=BEFORE_TRANSFER)]
    engines: tuple[EngineObservation, ...]


class Destroyed(ObserverEvent):
    """The stack right after the harness destroyed its weights, before transfer 0."""

    kind: Literal["destroyed"] = "destroyed"
    engines: tuple[EngineObservation, ...]


class PerturbationObserved(ObserverEvent):
    """The stack while it has the perturbed weights, and after the last version was given back to it."""

    kind: Literal["perturbation.observed"] = "perturbation.observed"
    stage: Stage
    engines: tuple[EngineObservation, ...]


class AdapterObservation(Data):
    """One engine with a LoRA adapter: its probes while it was loaded, the base's after it was unloaded again.

    `advertised` are the routes for adapters that discovery lists for its worker; `refusal` says why nothing was asked
    of it: there are none. `failed` is the answer that ended the trial: what was asked, its status and its text.
    `afterwards` is the status of a request for the adapter once it was unloaded.
    """

    admin_url: str
    advertised: tuple[str, ...] = ()
    refusal: str | None = None
    failed: str | None = None
    loaded: tuple[Probe, ...] = ()
    unloaded: tuple[Probe, ...] = ()
    afterwards: Whole | None = None


class AdapterObserved(ObserverEvent):
    """Every engine with the trainer's adapter, after the last refit."""

    kind: Literal["adapter.observed"] = "adapter.observed"
    engines: tuple[AdapterObservation, ...]


class Generation(ObserverEvent):
    """A chat completion through the frontend."""

    kind: Literal["generation"] = "generation"
    when: Literal["before", "after"]
    status: Whole
    text: str
    completion_tokens: Count
    finish_reason: str | None
    seconds: float


class RequestTimes(ObserverEvent):
    """Seconds of equal requests, one after the other, while the stack had nothing else to do."""

    kind: Literal["request.times"] = "request.times"
    via: Literal["frontend", "engine"]
    seconds: tuple[float, ...]
