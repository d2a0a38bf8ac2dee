"""What engines and sidecars say of themselves when nothing may be generated: labels, and whether one is paused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from harness.admin import EngineAdmin
from harness.calling import HttpBodyError, HttpStatusError
from harness.events import EngineLabels
from harness.observer import Observer, or_none
from harness.poller import assume_alive
from harness.topology import Worker

MOMENTS = 3
"""How often two labels are asked for before it is taken that they change faster than can be asked."""


def labels_of(observer: Observer, request_s: float) -> tuple[EngineLabels, ...]:
    """What every engine and sidecar says of itself; asked without a look at the processes meanwhile."""
    quick = replace(observer, request_s=request_s)
    return tuple(_labels(quick, worker) for worker in observer.topology.workers)


def _labels(observer: Observer, worker: Worker) -> EngineLabels:
    """Both labels of one moment: asked again when the engine's was set between the two questions."""
    engine, sidecar = observer.engine(worker), observer.sidecar(worker)
    label = observer.label(engine, worker)
    for _ in range(MOMENTS):
        sidecar_label = None if sidecar is None else or_none(sidecar.weight_version)
        paused = or_none(engine.is_paused)
        before, label = label, observer.label(engine, worker)
        if before == label:
            break
    return EngineLabels(admin_url=worker.admin_url, engine_label=label, sidecar_label=sidecar_label, paused=paused)


def pauses_of(observer: Observer, request_s: float) -> dict[str, bool | None]:
    """Of each engine by its admin URL whether it says that it is paused; None for one that gives no sound answer.

    Asked without a look at the processes: for a run that is ending, whose cause no answer may take the place of,
    nor one that does not come.
    """
    quick = replace(observer, request_s=request_s, watch=assume_alive)
    workers = observer.topology.workers
    late = HttpStatusError("GET /is_paused", status=None, found="no answer", where=observer.where())
    told: dict[str, bool | None] = dict.fromkeys((worker.admin_url for worker in workers), None)

    def ask() -> None:
        for worker in workers:
            told[worker.admin_url] = sound(quick.engine(worker))

    def sound(engine: EngineAdmin) -> bool | None:
        try:
            return engine.is_paused()
        except (HttpStatusError, HttpBodyError):
            return None

    with suppress(HttpStatusError):
        quick.vigil.call(ask, (request_s + 1) * len(workers), late)
    return dict(told)
