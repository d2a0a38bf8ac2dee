"""Whom an engine's weights are asked of: vLLM's routes for weights, or its workers through our extension.

A front end without these routes has no label, no digests and no state of an update to tell; its workers have all
three. The harness asks in the one way or the other for a whole run, never in the one that happens to answer.
"""

from __future__ import annotations

from typing import Protocol

from harness.admin import EngineAdmin
from harness.calling import HttpBodyError
from harness.events import HeldParameter
from harness.inspection import as_held, held_by


class Account(Protocol):
    """What is asked of one engine about its weights. `ranks` is how many workers it has."""

    def label(self, engine: EngineAdmin, ranks: int) -> str: ...

    def has_open_update(self, engine: EngineAdmin) -> bool: ...

    def held(self, engine: EngineAdmin) -> tuple[tuple[HeldParameter, ...], ...]: ...


class OfRoutes:
    """The engine's own label and digests."""

    def label(self, engine: EngineAdmin, ranks: int) -> str:
        return engine.weight_version()

    def has_open_update(self, engine: EngineAdmin) -> bool:
        return engine.has_open_update()

    def held(self, engine: EngineAdmin) -> tuple[tuple[HeldParameter, ...], ...]:
        return held_by(engine)


class OfWorkers:
    """Each worker's own; a label on which they differ is all that they say."""

    def label(self, engine: EngineAdmin, ranks: int) -> str:
        """Raises HttpBodyError when not each of the workers answered."""
        told = engine.worker_versions()
        if len(told) != ranks:
            raise HttpBodyError(
                "not every worker named its version",
                expected=f"{ranks} version(s)",
                found=f"{len(told)}",
                where=engine.http.base_url,
            )
        return " and ".join(sorted(set(told)))

    def has_open_update(self, engine: EngineAdmin) -> bool:
        return any(engine.workers_updating())

    def held(self, engine: EngineAdmin) -> tuple[tuple[HeldParameter, ...], ...]:
        return tuple(as_held(rank, {}) for rank in engine.contents(whole=True))
