"""What a refit announces and sends: the parameters of a module. The same for every release of vLLM.

vLLM 0.27 and later have such a class of their own; the 0.26 line has none, and takes any iterator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Announced:
    """One tensor without its values."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class ParameterSource:
    """A module's parameters in its own order, once each: tied ones under their first name. Fresh at each iteration."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def metadata(self) -> list[Announced]:
        return [Announced(name, one.dtype, tuple(one.shape)) for name, one in self._module.named_parameters()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self._module.named_parameters():
            yield name, parameter.detach()
