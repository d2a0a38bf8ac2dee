"""What must not be so on any engine before something is generated, or anything is transferred to it."""

from __future__ import annotations

from collections.abc import Callable

from harness.admin import EngineAdmin
from harness.calling import HttpStatusError
from harness.errors import NotReadyError
from harness.observer import Observer


def require_unpaused(observer: Observer) -> None:
    """Raise NotReadyError for an engine that somebody left paused: it says that it is well, and never generates."""
    _require_none(
        observer,
        EngineAdmin.is_paused,
        "GET /is_paused",
        "an engine is paused before anybody of this run has paused it",
        expected="GET /is_paused says false on every engine",
        found="paused:",
        hint="whatever paused it may have died since: POST /resume there, or restart the engine",
    )


def require_world_sizes(observer: Observer) -> None:
    """Raise NotReadyError for an engine that itself has another number of ranks than discovery tells of it.

    The transfer group would wait for a rank that nobody has, or have no place for one.
    """
    where = observer.where(" and ")
    late = HttpStatusError(
        f"GET /get_world_size of {where} got no answer in time", status=None, found="no answer", where=where
    )
    workers = observer.topology.workers
    sizes = observer.vigil.call(lambda: [observer.engine(w).world_size() for w in workers], observer.request_s, late)
    wrong = [(worker, size) for worker, size in zip(workers, sizes, strict=True) if size != worker.world_size]
    if wrong:
        raise NotReadyError(
            "an engine does not have the ranks that discovery tells of it",
            expected=", ".join(f"{worker.world_size} at {worker.admin_url}" for worker, _ in wrong),
            found=", ".join(f"{size} at {worker.admin_url}" for worker, size in wrong),
            where=", ".join(worker.admin_url for worker, _ in wrong),
            hint="the sidecar talks to another engine than its admin URL names, or the engine was restarted",
        )


def require_no_open_update(observer: Observer) -> None:
    """Raise NotReadyError for an engine on which somebody opened a weight update and never finished it.

    To be asked before anything is generated: on the CPU, vLLM's engine core does not survive that.
    """
    _require_none(
        observer,
        observer.account.has_open_update,
        "the question for an open weight update",
        "an engine has a weight update open that somebody else began and never finished",
        expected="no update before the run's first one",
        found="a weight update is already active on",
        hint="its weights are half taken apart: restart the engine",
    )


def _require_none(
    observer: Observer,
    ask: Callable[[EngineAdmin], bool],
    route: str,
    what: str,
    *,
    expected: str,
    found: str,
    hint: str,
) -> None:
    """Raise NotReadyError for the engines that answer yes, HttpStatusError when one does not answer in time."""
    late = HttpStatusError(
        f"{route} of {observer.where(' and ')} got no answer in time",
        status=None,
        found="no answer",
        where=observer.where(" and "),
    )
    workers = observer.topology.workers
    told = observer.vigil.call(
        lambda: [w.admin_url for w in workers if ask(observer.engine(w))], observer.request_s, late
    )
    if told:
        where = ", ".join(told)
        raise NotReadyError(what, expected=expected, found=f"{found} {where}", where=where, hint=hint)
