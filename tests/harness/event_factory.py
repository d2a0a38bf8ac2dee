"""The events of a passing run, and small edits of them, for tests of whatever reads events."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import events
from harness.config import GrpoConfig, RunConfig

Fields = dict[str, Any]

EMBEDDING, PROJECTION, NORM = "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"
FREED, HEAD = "model.layers.0.mlp.down_proj.weight", "lm_head.weight"
HOW: dict[str, Any] = {
    EMBEDDING: "part",
    PROJECTION: "multiplied",
    NORM: "held",
    FREED: "held",
    HEAD: "multiplied",
}
"""An engine's parameters. The projection is read back, the freed one is not: its digest is that of nothing."""

TIED = {HEAD: EMBEDDING}
SHAPES = {EMBEDDING: (261, 128), PROJECTION: (128, 128), NORM: (128,), FREED: (128, 256), HEAD: (261, 128)}
EMPTY = hashlib.sha256(b"").hexdigest()
FINGERPRINT = "f" * 64
SHA = "6f2bb3c5b4dc03cab615c8985971247f016c7113b7e5010da447eb633800dfa5"
MORE = {"engine": 200, "sidecar": 300}
SERVICES = {"etcd": 101, "engine-0": 102, "frontend": 103, "sidecar-0": 104}
GROUPS = GrpoConfig(prompts_per_step=2, group_size=2)
ROLLOUTS = GROUPS.prompts_per_step * GROUPS.group_size
"""Of each step."""

FITTING, ASTRAY = (3e-6, 4e-6, 2e-6, 3e-6), (0.03, 0.05, 0.04, 0.06)
"""How far each of a step's rollouts is from the version that it is of, and from another one."""

PROMPTS = ((51, 43, 52, 61), (57, 43, 48, 61), (49, 43, 49, 61), (50, 43, 55, 61))
REFIT_STAGES = {"pause": 0.01, "start": 0.01, "update": 0.05, "finish": 0.01, "reset": 0.01, "resume": 0.01}


def services(config: RunConfig) -> dict[str, int]:
    """Pids of the services, in the order of their start."""
    more = {f"{kind}-{index}": pid + index for index in range(1, config.engines) for kind, pid in MORE.items()}
    return SERVICES | more


def run_config(run_dir: Path = Path("runs/20260102T030405-ab12"), **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "run_id": "ab12",
        "run_dir": run_dir,
        "project_root": Path(),
        "stack": "cpu",
        "platform": "cpu",
        "environment": Path(".venv-cpu"),
        "model": "tiny",
        "served_model_name": "tiny",
        "starts_untrained": True,
        "steps": 4,
        "grpo": GROUPS,
        "tmp_dir": Path("tmp"),
    }
    sizes = changes.get("tensor_parallel", (1,))
    values["ports"] = {f"engine-{index}": 8002 + index for index in range(len(sizes))}
    return RunConfig(**(values | changes))


def passing_run(config: RunConfig | None = None) -> list[Fields]:
    """Every event of a run in which nothing went wrong, as decoded from `events.jsonl`."""
    config = config or run_config()
    listed = [
        events.RunStarted(config=config.model_dump(mode="json")),
        *_up(config),
        events.TransferInitialised(world_size=2, seconds=0.4),
        *(event for version in range(config.steps + 1) for event in _version(version, config)),
        *_perturbation(config),
        *(_adapter(config) if config.lora else []),
        events.TrainerDone(steps=config.steps),
        events.Generation(when="after", status=200, text="7", completion_tokens=1, finish_reason="stop", seconds=0.21),
        processes("end", config),
        listening("end", config),
        events.Phase(phase="train", seconds=11.7),
        *(events.ServiceExited(service=name, returncode=-15, expected=True) for name in reversed(services(config))),
        events.Teardown(survivors=(), ports=(), files=(), seconds=2.4),
        events.Phase(phase="teardown", seconds=2.4),
    ]
    return [event.model_copy(update={"t": 1.5 * index}).fields() for index, event in enumerate(listed)]


def _up(config: RunConfig) -> list[events.Event]:
    return [
        events.Pins(
            expected={"vllm": "0.32.0+cpu", "torch": "2.13.0+cpu"},
            found={"vllm": "0.32.0+cpu", "torch": "2.13.0+cpu"},
            binaries={"vllm-rs": events.BinaryHashes(expected=SHA, found=SHA)},
        ),
        events.Phase(phase="install", seconds=0.4),
        *(
            events.ServiceStarted(service=name, pid=pid, start_time=1000.0 + pid, log=f"logs/{name}.log")
            for name, pid in services(config).items()
        ),
        events.ServiceReady(service="etcd", seconds=0.9),
        events.TrainerReady(
            parameters=381_056,
            bytes=1_524_224,
            dtype="float32",
            names_sha256=SHA,
            warmup=events.Warmup(cached=False, steps=150, seconds=12.1),
            probe_prompts=PROMPTS,
            stop_token_ids=(0,),
            tensors=tuple(
                events.AnnouncedTensor(name=name, dtype="float32", shape=SHAPES[name])
                for name in HOW
                if name not in TIED
            ),
            tied=TIED,
        ),
        events.ServiceReady(service="frontend", seconds=1.1),
        events.ServiceReady(service="engine-0", seconds=28.1),
        events.ServiceReady(service="sidecar-0", seconds=1.2),
        topology(config),
        events.Generation(
            when="before", status=200, text="q", completion_tokens=1, finish_reason="length", seconds=0.34
        ),
        events.Phase(phase="ready", seconds=31.2),
        processes("start", config),
        listening("start", config),
        observed(events.BEFORE_TRANSFER, config),
        events.Destroyed(engines=engines("0", 7, config, key="destroyed")),
    ]


def _perturbation(config: RunConfig) -> list[events.Event]:
    last, repeated, perturbed = str(config.steps), f"{config.steps}-repeated", f"{config.steps}-perturbed"
    return [
        events.Perturbation(stage="repeated", label=repeated, seconds=0.1, parameters=digests(last, config)),
        in_flight("repeated", last, repeated, config),
        events.PerturbationObserved(stage="repeated", engines=engines(repeated, config.steps, config, key=last)),
        events.Perturbation(stage="perturbed", label=perturbed, seconds=0.1, parameters=digests(perturbed, config)),
        in_flight("perturbed", repeated, perturbed, config),
        events.PerturbationObserved(stage="perturbed", engines=engines(perturbed, 9, config)),
        events.Perturbation(stage="restored", label=last, seconds=0.1, parameters=digests(last, config)),
        in_flight("restored", perturbed, last, config),
        events.PerturbationObserved(stage="restored", engines=engines(last, config.steps, config)),
    ]


def _adapter(config: RunConfig) -> list[events.Event]:
    """With it everything is as different as several versions are."""
    far = config.steps + 20
    observed_engines = tuple(
        events.AdapterObservation(
            admin_url=admin_url(index),
            loaded=probes(far, rounding=1e-6),
            unloaded=probes(config.steps, rounding=1e-6),
            afterwards=404,
        )
        for index in range(config.engines)
    )
    return [
        events.Adapter(name="adapter", path="/tmp/adapter", layers=14, probes=reference(far)),
        events.AdapterObserved(engines=observed_engines),
    ]


def _version(version: int, config: RunConfig) -> list[events.Event]:
    step = [training_step(version)] if version else []
    return [
        *step,
        events.Refit(
            version=version,
            seconds=events.RefitSeconds(**REFIT_STAGES, total=0.1 + version / 100),
            bytes=1_524_224,
            buckets=1,
            engines=tuple(admin_url(index) for index in range(config.engines)),
        ),
        events.TrainerWeights(version=version, parameters=digests(str(version), config)),
        events.TrainerProbe(version=version, probes=reference(version)),
        observed(version, config),
    ]


def admin_url(index: int) -> str:
    return f"http://127.0.0.1:{8002 + index}"


def topology(config: RunConfig) -> events.Topology:
    return events.Topology(
        world_size=config.world_size,
        expected_world_size=config.world_size,
        fingerprint=FINGERPRINT,
        workers=tuple(
            events.Worker(
                engine=f"engine-{index}",
                component="backend",
                instance_id=str(7587 + index),
                admin_url=admin_url(index),
                system_url=f"http://127.0.0.1:{8081 + index}",
                model=config.served_model_name,
                world_size=config.tensor_parallel[index],
                rank_offset=sum(config.tensor_parallel[:index]),
            )
            for index in range(config.engines)
        ),
    )


def probes(version: int, rounding: float = 0.0) -> tuple[events.Probe, ...]:
    """Probes of one version; log-probabilities move by 0.05 a version and by `rounding` everywhere."""
    shift = 0.05 * version + rounding
    return tuple(
        events.Probe(
            prompt_ids=prompt,
            token_ids=(55, 0),
            logprobs=(-0.4 + shift / 10, -0.1 + shift / 10),
            prompt_logprobs=(-3.0 + shift, -2.0 + shift, -1.5 + shift),
        )
        for prompt in PROMPTS
    )


def reference(version: int) -> tuple[events.ReferenceProbe, ...]:
    """The trainer's probes of one version; its greedy choices were clear."""
    return tuple(events.ReferenceProbe(**probe.model_dump(), margins=(2.5, 4.0)) for probe in probes(version))


def digests(key: str, config: RunConfig | None = None) -> tuple[events.ReferenceDigest, ...]:
    """What the trainer says that it holds, and of the slices that the ranks have; `key` stands for the values."""
    sizes = {1} if config is None else {1, *config.tensor_parallel}
    cuts = {
        (name, cut_of(name, rank, ranks)): None
        for ranks in sorted(sizes)
        for rank in range(ranks)
        for name in HOW
        if name not in TIED
    }
    return tuple(
        events.ReferenceDigest(
            name=name,
            sha256=sha(name, key, *_place(cut)),
            values_sha256=sha(name, key, *_place(cut), "values"),
            cut=cut,
        )
        for name, cut in cuts
    )


def sha(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def held(key: str, rank: int = 0, ranks: int = 1) -> tuple[events.HeldParameter, ...]:
    """What one of an engine's ranks tells when it holds (its slice of) the weights that `key` stands for."""
    return tuple(_held(name, key, cut_of(name, rank, ranks)) for name in HOW)


def _held(name: str, key: str, cut: events.Cut | None) -> events.HeldParameter:
    values = ["values"] if HOW[name] == "multiplied" else []
    shape = list(SHAPES[name])
    if cut is not None:
        shape[cut.dim] = cut.stop - cut.start
    told = EMPTY if name == FREED else sha(TIED.get(name, name), key, *_place(cut), *values)
    return events.HeldParameter(name=name, how=HOW[name], dtype="float32", shape=tuple(shape), sha256=told, cut=cut)


def cut_of(name: str, rank: int, ranks: int) -> events.Cut | None:
    """The slice that a rank has: columns of a projection back to the hidden size, rows of everything else but norms."""
    if ranks == 1 or name == NORM:
        return None
    dim = 1 if name == FREED else 0
    size = SHAPES[name][dim]
    return events.Cut(dim=dim, start=rank * size // ranks, stop=(rank + 1) * size // ranks)


def _place(cut: events.Cut | None) -> list[str]:
    return [] if cut is None else [str(cut)]


def engines(
    label: str, moved: int, config: RunConfig, *, key: str | None = None
) -> tuple[events.EngineObservation, ...]:
    """Every engine under `label`, with the probes of `moved` and the weights of `key` (or of the label)."""
    return tuple(
        events.EngineObservation(
            admin_url=admin_url(index),
            system_url=f"http://127.0.0.1:{8081 + index}",
            engine_label=label,
            sidecar_label=label,
            paused=False,
            probes=probes(moved, rounding=1e-6),
            spans=tuple((events.Span(version=label, start=0, end=2),) for _ in PROMPTS),
            cache=cache_probe(),
            ranks=tuple(
                held(key or label, rank, config.tensor_parallel[index]) for rank in range(config.tensor_parallel[index])
            ),
            finished=finished(moved, index, config),
        )
        for index in range(config.engines)
    )


def finished(moved: int, index: int, config: RunConfig) -> events.FinishedRequests:
    """Two more in each observation, and between two of them the engine's share of a step's rollouts."""
    share = ROLLOUTS // config.engines + (ROLLOUTS % config.engines > index)
    begun = 10 + (share + 2) * (moved + 1)
    return events.FinishedRequests(before=begun, after=begun + 2)


def observed(version: int, config: RunConfig) -> events.Observed:
    label = "default" if version < 0 else str(version)
    return events.Observed(version=version, engines=engines(label, version, config))


def cache_probe() -> events.CacheProbe:
    fresh = events.CacheAnswer(cached_tokens=0, logprob=-0.25)
    return events.CacheProbe(
        prompt_tokens=300, first=fresh, again=events.CacheAnswer(cached_tokens=256, logprob=-0.25), reference=fresh
    )


def in_flight(stage: events.Stage, before: str, after: str, config: RunConfig) -> events.InFlight:
    """Generations in flight at one refit, two at each engine and one through the frontend."""
    pause, asked = events.PAUSES[stage], 64
    tokens = 40 if pause == "abort" else asked
    begun = 40 if pause == "keep" else tokens
    spans = [events.Span(version=before, start=0, end=begun)]
    if begun < tokens:
        spans.append(events.Span(version=after, start=begun, end=tokens))
    one = events.LongGeneration(
        via="engine",
        url=admin_url(0),
        seen=3,
        asked=asked,
        tokens=tokens,
        status=200,
        error="",
        finish_reason="abort" if pause == "abort" else "length",
        spans=tuple(spans),
        ended_s=0.9 if pause == "keep" else 0.5,
    )
    at_frontend = {"via": "frontend", "url": "http://127.0.0.1:8000", "spans": None}
    # Dynamo's frontend calls an aborted answer "stop".
    frontend = one.model_copy(update=at_frontend | ({"finish_reason": "stop"} if pause == "abort" else {}))
    at_engines = [one.model_copy(update={"url": admin_url(index)}) for index in range(config.engines) for _ in range(2)]
    return events.InFlight(
        stage=stage,
        pause=pause,
        holds=1,
        held_s=0.01,
        refitted_s=0.55,
        generations=(*at_engines, frontend),
    )


def training_step(number: int) -> events.Step:
    return events.Step(
        step=number,
        version_sampled=number - 1,
        loss=-0.01 * number,
        grad_norm=1.2,
        tokens=512,
        rollouts=ROLLOUTS,
        errored=0,
        rewards=events.Rewards(
            mean=0.4 + number / 20,
            std=0.5,
            groups=(
                events.RewardGroup(prompt="3+4=", rewards=(1.0, 0.0)),
                events.RewardGroup(prompt="9+0=", rewards=(1.0, 1.0)),
            ),
        ),
        mismatch=events.Mismatch(mean_abs=1e-6, max_abs=4e-6, k3=2e-12),
        fits=tuple(
            events.VersionFit(version=version, max_abs=FITTING if version == number - 1 else ASTRAY)
            for version in range(max(number - 2, 0), number + 1)
        ),
        seconds=events.StepSeconds(rollout=1.21, train=0.34),
    )


def listening(when: Any, config: RunConfig | None = None) -> events.Listening:
    return events.Listening(
        when=when,
        sockets=tuple(
            events.ListeningSocket(service=name, pid=pid, protocol="tcp", address="127.0.0.1", port=20_000 + pid)
            for name, pid in services(config or run_config()).items()
        ),
        unread=(),
    )


def processes(when: Any, config: RunConfig | None = None) -> events.Processes:
    return events.Processes(
        when=when,
        fingerprint=FINGERPRINT,
        processes=tuple(
            events.ProcessRecord(service=name, pid=pid, start_time=1000.0 + pid)
            for name, pid in services(config or run_config()).items()
        ),
    )


def failure(**changes: Any) -> events.Failure:
    values: dict[str, Any] = {
        "kind": "refit",
        "what": "refit 2 failed: the engine refused an update",
        "expected": "HTTP 200 from POST /update_weights",
        "found": "HTTP 500: no parameter named model.layers.7.mlp",
        "where": admin_url(0),
        "hint": "send the names that the engine's model has",
        "log": None,
        "exit_code": 40,
    }
    return events.Failure(error=events.RunFailure(**(values | changes)))


def edited(run: list[Fields], change: Callable[[list[Fields]], object]) -> list[Fields]:
    """A copy of `run` after `change` has had its way with it."""
    mutable = pickle.loads(pickle.dumps(run))  # several times as quick as deepcopy
    change(mutable)
    return mutable


def the(run: list[Fields], kind: str, **where: Any) -> Fields:
    """The only event of `kind` with these field values."""
    (event,) = [e for e in run if e["kind"] == kind and all(e[name] == value for name, value in where.items())]
    return event


def without(run: list[Fields], kind: str, **where: Any) -> list[Fields]:
    """A copy of `run` that lacks all events of `kind` with these field values."""
    return [e for e in run if e["kind"] != kind or any(e[name] != value for name, value in where.items())]
