"""What the trainer itself holds: each parameter's digest, and a visible change of all of them that can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from smokestack_payload.digests import digest, dtype_name, values_digest
from smokestack_payload.settings import Cut, Slice

NOISE = 0.5
"""Of a perturbation, against the parameter's own root mean square."""

LEAST_NOISE = 1e-2
"""The same for parameters that are all zero."""


def described(metas: Any) -> list[dict[str, Any]]:
    """Name, type and shape of each tensor that a weight source announces (vLLM's `ParamMeta`s)."""
    return [{"name": meta.name, "dtype": dtype_name(meta.dtype), "shape": list(meta.shape)} for meta in metas]


def tied_names(model: torch.nn.Module) -> dict[str, str]:
    """For each parameter that is another one under a second name: that other one, which is the name that is sent."""
    first: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(parameter), name)
        if known != name:
            tied[name] = known
    return tied


def digests(model: torch.nn.Module, slices: Iterable[Slice] = ()) -> list[dict[str, Any]]:
    """Each parameter's digests as it is now: of its bytes, and of its values (see `digests`).

    Then those of the `slices`, under the name that is sent; a slice that no parameter has is left out, and missed by
    whoever asked for it.
    """
    whole = dict(model.named_parameters())
    tied = tied_names(model)
    told = [_digested(name, parameter, None) for name, parameter in whole.items()]
    for name, cut in dict.fromkeys((tied.get(one.name, one.name), one.cut) for one in slices):
        part = sliced(whole[name], cut) if name in whole else None
        if part is not None:
            told.append(_digested(name, part, cut))
    return told


def _digested(name: str, tensor: torch.Tensor, cut: Cut | None) -> dict[str, Any]:
    part = {} if cut is None else {"cut": asdict(cut)}
    return {"name": name, **part, "sha256": digest(tensor), "values_sha256": values_digest(tensor)}


def sliced(whole: torch.Tensor, cut: Cut) -> torch.Tensor | None:
    """That part of a parameter; None where it has no such part."""
    if not 0 <= cut.dim < whole.dim() or not 0 <= cut.start <= cut.stop <= whole.shape[cut.dim]:
        return None
    return whole.narrow(cut.dim, cut.start, cut.stop - cut.start)


@contextmanager
@torch.no_grad()
def perturbed(model: torch.nn.Module, seed: int) -> Iterator[None]:
    """Add noise to every parameter, and on leaving put each back as it was, bit for bit."""
    generator = torch.Generator().manual_seed(seed)
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype)
        strength = max(NOISE * float(parameter.float().square().mean().sqrt()), LEAST_NOISE)
        parameter.add_(noise, alpha=strength)
    try:
        yield
    finally:
        for parameter, before in zip(model.parameters(), kept, strict=True):
            parameter.copy_(before)
