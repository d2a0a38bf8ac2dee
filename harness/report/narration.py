"""What an event reads like while it happens: one line for people, or nothing."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path

from harness import events
from harness.evidence.check import counted
from harness.plaintext import plain
from harness.ranks import table
from harness.report.failure import failure_headline, shown

INDENT = " " * 12
"""Of further lines: below the first one's text, behind the time."""

ENDED: dict[events.PhaseName, str] = {
    "install": "environment installed",
    "ready": "stack ready",
    "train": "training done",
    "teardown": "everything stopped",
}


@singledispatch
def narrate(event: events.BaseEvent) -> str | None:
    """The line for `event`; None for kinds that are evidence only."""
    return None


@narrate.register
def _(event: events.RunStarted) -> str:
    config = event.config
    run_dir = config.get("run_dir")
    where = f" in {shown(Path(run_dir))}" if run_dir else ""
    steps = config.get("steps")
    sabotage = config.get("sabotage")
    warning = f"SABOTAGED on purpose ({sabotage}), this run must fail: " if sabotage else ""
    own = config.get("trainer")
    trained = f"trainer {own['argv'][0]}" if own else f"{steps} steps"
    alone = "" if config.get("serving", "dynamo") == "dynamo" else "control: the engine alone, "
    return f"{warning}{alone}stack {config.get('stack')}, model {config.get('model')}, {trained}{where}"


@narrate.register
def _(event: events.Phase) -> str:
    return f"{ENDED[event.phase]} ({event.seconds:.1f} s)"


@narrate.register
def _(event: events.Note) -> str:
    return plain(event.text)


@narrate.register
def _(event: events.ServiceStarted) -> str:
    return f"{event.service} started (pid {event.pid})"


@narrate.register
def _(event: events.ServiceReady) -> str:
    return f"{event.service} ready ({event.seconds:.1f} s)"


@narrate.register
def _(event: events.ServiceExited) -> str | None:
    return None if event.expected else f"{event.service} exited unexpectedly with {event.returncode}"


@narrate.register
def _(event: events.Topology) -> str:
    found = f"discovered {counted(len(event.workers), 'engine')}, world size {event.world_size}"
    return "\n".join([found, *(INDENT + plain(line) for line in table(event.workers))])


@narrate.register
def _(event: events.Generation) -> str:
    answer = f"{plain(event.text)[:40]!r}" if event.status == 200 else f"HTTP {event.status}"
    return f"generation {event.when} the refits: {answer} ({event.seconds:.2f} s)"


@narrate.register
def _(event: events.TrainerReady) -> str:
    text = f"trainer has {event.parameters / 1e6:.2f}M parameters in {event.dtype}"
    if event.warmup is None:
        return text
    warmup = "cached" if event.warmup.cached else f"{event.warmup.seconds:.1f} s"
    return f"{text}, warm-up of {counted(event.warmup.steps, 'step')} ({warmup})"


@narrate.register
def _(event: events.TransferInitialised) -> str:
    return f"transfer group of {counted(event.world_size, 'rank')} is up ({event.seconds:.1f} s)"


@narrate.register
def _(event: events.Step) -> str:
    seconds = event.seconds.rollout + event.seconds.train
    return f"step {event.step}: reward {event.rewards.mean:.3f}, loss {event.loss:.4f} ({seconds:.1f} s)"


@narrate.register
def _(event: events.Refit) -> str:
    size = f"{event.bytes / 1e6:.1f} MB in {counted(event.buckets, 'bucket')}"
    return f"refit {event.version}: {size} to {counted(len(event.engines), 'engine')} ({event.seconds.total:.2f} s)"


@narrate.register
def _(event: events.AdapterObserved) -> str:
    hindered = [engine.failed or engine.refusal for engine in event.engines if engine.failed or engine.refusal]
    if hindered:
        return plain(f"adapter not served: {hindered[0]}")
    return f"adapter loaded, asked and unloaded on {counted(len(event.engines), 'engine')}"


@narrate.register
def _(event: events.InFlight) -> str:
    cut = sum(one.tokens < one.asked for one in event.generations)
    split = sum(len(one.spans or ()) > 1 for one in event.generations)
    return f"paused by {event.pause}: {counted(len(event.generations), 'generation')}, {cut} cut short, {split} split"


@narrate.register
def _(event: events.Observed) -> str | None:
    if event.version == events.BEFORE_TRANSFER:
        return None
    engines = " ".join(str(engine.engine_label) for engine in event.engines)
    sidecars = " ".join(str(engine.sidecar_label) for engine in event.engines if engine.system_url)
    said = f", sidecar says {sidecars}" if sidecars else ""
    return plain(f"version {event.version}: engine says {engines}{said}")


@narrate.register
def _(event: events.LabelsSeen) -> str | None:
    if any(engine.paused for engine in event.engines):
        return None
    engines = " ".join(str(engine.engine_label) for engine in event.engines)
    sidecars = " ".join(str(engine.sidecar_label) for engine in event.engines)
    return plain(f"engine says version {engines}, sidecar says {sidecars}")


@narrate.register
def _(event: events.CommandEnded) -> str:
    if event.returncode is None:
        return f"the command still runs after {event.seconds:.1f} s"
    return f"the command ended with {event.returncode} ({event.seconds:.1f} s)"


@narrate.register
def _(event: events.Destroyed) -> str:
    return f"weights of {counted(len(event.engines), 'engine')} destroyed before the first transfer"


@narrate.register
def _(event: events.Perturbation) -> str:
    what = "sent again" if event.stage == "repeated" else event.stage
    return f"weights {what}: version label {plain(event.label)!r} ({event.seconds:.2f} s)"


@narrate.register
def _(event: events.Teardown) -> str | None:
    left = len(event.survivors) + len(event.ports) + len(event.files)
    return f"teardown left {counted(left, 'thing')} behind" if left else None


@narrate.register
def _(event: events.Failure) -> str:
    return failure_headline(event.error)
