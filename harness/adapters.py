"""Gives every engine a LoRA adapter and takes it away again, by the routes that its worker advertises.

What it answers meanwhile is recorded and judged elsewhere (`evidence.adapters`): also a refusal, which ends the trial
and not the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.admin import LOAD_ADAPTER, UNLOAD_ADAPTER, EngineAdmin
from harness.calling import HttpBodyError, HttpStatusError
from harness.events import AdapterObservation, AdapterObserved, Probe
from harness.inspection import ObservationError, probe
from harness.observer import Observer
from harness.topology import Worker

Prompts = Sequence[Sequence[int]]


def try_adapter(observer: Observer, name: str, path: str, prompts: Prompts) -> AdapterObserved:
    """Load the adapter in the folder `path` on every engine, ask it and unload it.

    Raises ObservationError when the whole takes longer than `observe_s`.
    """
    late = ObservationError(
        "the adapter was not loaded, asked and unloaded in time",
        expected=f"all of it within {observer.observe_s:g} s",
        found="a request without an answer",
        where=observer.where(),
    )
    workers = observer.topology.workers
    trials = observer.vigil.call(
        lambda: tuple(_try_on(observer, worker, name, path, prompts) for worker in workers), observer.observe_s, late
    )
    return AdapterObserved(engines=trials)


def _try_on(observer: Observer, worker: Worker, name: str, path: str, prompts: Prompts) -> AdapterObservation:
    sidecar, engine = observer.sidecar(worker), observer.engine(worker)
    seen: dict[str, Any] = {
        "admin_url": worker.admin_url,
        "advertised": tuple(route for route in worker.routes if "lora" in route),
    }
    if sidecar is None:
        return AdapterObservation(**seen, refusal="it has no sidecar that could take one")
    lacking = [route for route in (LOAD_ADAPTER, UNLOAD_ADAPTER) if route not in worker.routes]
    if lacking:
        return AdapterObservation(**seen, refusal=f"its worker does not advertise {' and '.join(lacking)}")
    try:
        sidecar.load_adapter(name, path)
        seen["loaded"] = _probes(observer, engine, name, prompts)
        sidecar.unload_adapter(name)
        seen["unloaded"] = _probes(observer, engine, observer.model, prompts)
        seen["afterwards"] = _status_of(engine, name, prompts[0])
    except (HttpStatusError, HttpBodyError, ObservationError) as failed:
        status = "HTTP 200: " if isinstance(failed, HttpBodyError) else ""
        seen["failed"] = f"{failed.what}: {status}{failed.found}"
    return AdapterObservation(**seen)


def _probes(observer: Observer, engine: EngineAdmin, model: str, prompts: Prompts) -> tuple[Probe, ...]:
    tokens, stop = observer.new_tokens, observer.stop_token_ids
    return tuple(probe(engine, model, one, new_tokens=tokens, stop_token_ids=stop)[0] for one in prompts)


def _status_of(engine: EngineAdmin, model: str, prompt: Sequence[int]) -> int:
    """Of a request for that model; 0 without an answer."""
    try:
        engine.generate(model, prompt, {"temperature": 0.0, "max_tokens": 1})
    except HttpStatusError as refused:
        return refused.status or 0
    return 200
