"""The kinds of refit, as far as the harness has a part in them: what the engine is started with, and whom to ask.

What a kind does on the wire is the payload's (`refit.protocols`), which is told its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.accounts import Account, OfRoutes, OfWorkers
from harness.config import RefitKind
from harness.dialect import Dialect
from harness.errors import UsageError

CONTENT_WORKER = "smokestack_payload.worker.ContentWorker"
"""Our extension of vLLM's worker: it tells what the model holds, and can destroy it."""

REFIT_WORKER = "smokestack_payload.refit.worker.RefitWorker"
"""The same, and receives weights and keeps their version."""


@dataclass(frozen=True)
class Refit:
    """`routes` says whether weights go through vLLM's routes for them, which the engine then has to be set up for."""

    kind: RefitKind
    does: str
    routes: bool
    worker: str
    account: Account


REFITS: Mapping[RefitKind, Refit] = {
    refit.kind: refit
    for refit in (
        Refit("native", "through vLLM's routes for weight transfer", True, CONTENT_WORKER, OfRoutes()),
        Refit("collective-rpc", "through methods of a worker extension", False, REFIT_WORKER, OfWorkers()),
        Refit("filesystem", "by a checkpoint that the engines reload", False, REFIT_WORKER, OfWorkers()),
    )
}


def chosen(asked: RefitKind | None, dialect: Dialect) -> RefitKind:
    """The kind that was asked for, else the stack's own. Raises UsageError for one that the stack cannot do."""
    kind = asked or dialect.refit
    if REFITS[kind].routes and not dialect.weight_routes:
        able = ", ".join(name for name, refit in REFITS.items() if not refit.routes)
        raise UsageError(
            f"--refit {kind}: the engine of dialect {dialect.name} has no routes for weights",
            expected=f"one of {able}",
            found=kind,
            hint=f"--refit {dialect.refit}, or without the option",
        )
    return kind
