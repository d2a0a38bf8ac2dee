"""The payload's errors: each one becomes a `trainer.error` event, and the process ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class PayloadError(Exception):
    """Root. `kind` goes into the event; `poisoned` names engines (admin URLs) that stay paused and must not serve."""

    kind: ClassVar[str] = "protocol"

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        hint: str | None = None,
        poisoned: Sequence[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.found = found
        self.where = where
        self.hint = hint
        self.poisoned = tuple(poisoned)

    def as_dict(self) -> dict[str, object]:
        """The `error` field of the `trainer.error` event."""
        return {
            "kind": self.kind,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
            "where": self.where,
            "hint": self.hint,
            "poisoned": list(self.poisoned),
        }


class ProtocolError(PayloadError):
    """Configuration or a command is not what the protocol says."""


class ModelError(PayloadError):
    """The model folder cannot be used, or training it went wrong."""

    kind = "model"


class RolloutError(PayloadError):
    """The frontend did not give usable rollouts."""

    kind = "rollout"


class RefitError(PayloadError):
    """Weights did not reach every engine."""

    kind = "refit"
