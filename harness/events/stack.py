"""Events about the stack: its pins, services and topology, and what the harness itself observed of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.events.base import Count, Data, Flag, HarnessEvent, ObserverEvent, Whole

Stage = Literal["perturbed", "restored"]
"""Of the perturbation after the last step: the weights are visibly changed, then those of the last version again."""

BEFORE_TRANSFER = -1
"""The `version` of the observation made before transfer 0."""


class ServiceStarted(HarnessEvent):
    """`start_time` (seconds since the machine booted) together with the pid names one process for good."""

    kind: Literal["service.started"] = "service.started"
    service: str
    pid: Count
    start_time: float
    log: str


class ServiceReady(HarnessEvent):
    kind: Literal["service.ready"] = "service.ready"
    service: str
    seconds: float


class ServiceExited(HarnessEvent):
    """`expected` is true when the run itself asked the service to end."""

    kind: Literal["service.exited"] = "service.exited"
    service: str
    returncode: int | None
    expected: Flag


class BinaryHashes(Data):
    """SHA-256 of a binary: as pinned, and as read from the environment (None: no such file)."""

    expected: str
    found: str | None


class Pins(HarnessEvent):
    """What the manifest pins and all that the environment holds; a `found` of None is a package that is not there."""

    kind: Literal["pins"] = "pins"
    expected: dict[str, str]
    found: dict[str, str | None]
    binaries: dict[str, BinaryHashes]


class Worker(Data):
    """One record of the discovery answer: one engine, which is `world_size` ranks from `rank_offset` on.

    `engine` is its service's name, empty where no service of the run has its address.
    """

    engine: str = ""
    component: str
    instance_id: Whole | str
    admin_url: str
    system_url: str
    model: str
    world_size: Count
    rank_offset: Count


class Topology(HarnessEvent):
    """The pinned discovery snapshot. `expected_world_size` is configured, not discovered."""

    kind: Literal["topology"] = "topology"
    world_size: Count
    expected_world_size: Count
    fingerprint: str
    workers: tuple[Worker, ...]


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


class ProcessRecord(Data):
    service: str
    pid: Count
    start_time: float


class Processes(HarnessEvent):
    """Every process of the stack's services, and the topology's fingerprint, at the start or end of training."""

    kind: Literal["processes"] = "processes"
    when: Literal["start", "end"]
    fingerprint: str
    processes: tuple[ProcessRecord, ...]


class ListeningSocket(Data):
    """TCP that listens, or UDP that is connected to nobody. `address` is IPv4 or IPv6."""

    service: str
    pid: Count
    protocol: Literal["tcp", "udp"]
    address: str
    port: Count


class Listening(HarnessEvent):
    """On what the run's own processes listen: at the start those of that moment, at the end all that were ever seen.

    `unread` are pids whose sockets could not be looked at.
    """

    kind: Literal["listening"] = "listening"
    when: Literal["start", "end"]
    sockets: tuple[ListeningSocket, ...]
    unread: tuple[Count, ...]


class GpuProcess(Data):
    """A process with memory of a GPU; None where the driver does not tell how much."""

    pid: Count
    program: str
    used_mib: Count | None


class GpuUse(Data):
    """One GPU of the run, named as `CUDA_VISIBLE_DEVICES` names it."""

    name: str
    used_mib: Count | None
    processes: tuple[GpuProcess, ...]


class GpuMemory(HarnessEvent):
    """What was in use of the run's GPUs, by whomever: before anything was started, and after all of it was ended."""

    kind: Literal["gpu.memory"] = "gpu.memory"
    when: Literal["start", "end"]
    gpus: tuple[GpuUse, ...]
