"""The one time limit of a piece of work that has several parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """The one time limit of a piece of work, however many parts it has; `prepared_s` of it went into the first."""

    granted_s: float
    ends: float
    clock: Callable[[], float]
    prepared_s: float = 0.0

    def left(self) -> float:
        return max(self.ends - self.clock(), 0.0)

    def __str__(self) -> str:
        prepared = f", {self.prepared_s:.1f} s of it for writing" if self.prepared_s else ""
        return f"within {self.granted_s:g} s{prepared}"
