"""SHA-256 of a tensor's values, made the same way by the trainer and by the reader inside the engine."""

from __future__ import annotations

import hashlib

import torch


def digest(tensor: torch.Tensor) -> str:
    """Of the tensor's bytes, elements in row order: what vLLM's own `/weight_checker` says of the same tensor."""
    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy()).hexdigest()


def values_digest(tensor: torch.Tensor) -> str:
    """The same with -0.0 written as 0.0: a product cannot tell them apart, so a weight that is read back is +0.0."""
    plain = tensor.detach()
    return digest(plain + 0.0 if bool(((plain == 0) & torch.signbit(plain)).any()) else plain)


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")
