"""Probes: small questions to a service, each answered Ready, Pending (ask again) or Fatal (never will be).

A probe does not wait and does not retry; `poller` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ready:
    """The answer is there; `detail` is for people."""

    detail: str = ""


@dataclass(frozen=True)
class Pending:
    """Not yet, for this reason."""

    reason: str


@dataclass(frozen=True)
class Fatal:
    """Never: waiting longer cannot help."""

    reason: str


Outcome = Ready | Pending | Fatal


class Probe(Protocol):
    """One question. `what` names it in messages, for example "engine-0 GET /health"."""

    @property
    def what(self) -> str: ...

    def check(self) -> Outcome: ...
