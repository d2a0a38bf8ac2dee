"""The leases in etcd that Dynamo's processes live by: who loses one ends, or is taken off discovery.

etcd that stands still for longer than a lease's life (10 s in Dynamo 1.6) takes every lease with it when it goes on.
What is seen of that elsewhere is a frontend that ends by itself, or a list without workers; only etcd tells why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import Interrupted, SmokestackError
from harness.fetching import fetch

ASK_S = 1.0
ROUTE = "/v3/lease/leases"


class _Lease(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(alias="ID", max_length=64)


class _Listing(BaseModel):
    model_config = ConfigDict(extra="ignore")

    leases: tuple[_Lease, ...] = ()


@dataclass
class Leases:
    """The leases that etcd had whenever `note` was called: as services became ready, and with the whole stack."""

    etcd_url: str
    held: frozenset[str] = frozenset()
    answered: bool = False
    """Whether etcd ever told: one that never did has no silence to be named."""

    def note(self) -> None:
        """Remember those of now; nothing where etcd does not tell."""
        now = _listed(self.etcd_url)
        if now is not None:
            self.held |= now
            self.answered = True

    def loss(self) -> str | None:
        """What has become of them, for people; None while all are there, or etcd never told of any."""
        if not self.answered:
            return None
        now = _listed(self.etcd_url)
        if now is None:
            return "etcd does not answer: no lease can be renewed"
        lost = self.held - now
        if not lost:
            return None
        return f"lease lost: {len(lost)} of the {len(self.held)} leases that the stack lives by are gone from etcd"

    @contextmanager
    def naming_loss(self) -> Iterator[None]:
        """To whatever ends the run in here, add that a lease was lost, if one was."""
        try:
            yield
        except Interrupted:
            raise
        except SmokestackError as error:
            loss = self.loss()
            if loss is not None:
                error.what = f"{error.what}; {loss}"
            raise


def _listed(etcd_url: str) -> frozenset[str] | None:
    """The ids of all leases; None without an answer that can be read."""
    try:
        answer = fetch(etcd_url + ROUTE, method="POST", content=b"{}", timeout_s=ASK_S)
        if answer.status != 200 or answer.truncated:
            return None
        return frozenset(lease.id for lease in _Listing.model_validate_json(answer.body).leases)
    except (httpx.TransportError, ValidationError):
        return None
