"""Destroying what the CPU backend has repacked: the part of an engine's weights that vLLM's own reset leaves alone."""

from __future__ import annotations

from typing import Any

import torch

from smokestack_payload.contents import is_repacked, multiplied


@torch.no_grad()
def repack_zeros(model: torch.nn.Module) -> None:
    """Let every repacked layer pack zeros. Layers that still hold their weight must hold zeros already."""
    for layer in model.modules():
        if is_repacked(layer):
            _repack(layer)


def _repack(layer: Any) -> None:
    if layer.weight.numel() == 0:
        layer.weight = torch.nn.Parameter(torch.zeros_like(multiplied(layer)), requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
