"""A checkpoint as engines load it: safetensors files with their index, in a folder that appears whole or not at all.

`write` is the trainer's side, `require_whole` what an engine asks before it lets go of the weights that it has: a
reload that fails half-way leaves vLLM's engine without a model, and its core dies at the next request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from smokestack_payload.publish import published

INDEX = "model.safetensors.index.json"
FILE_BYTES = 1024 * 1024 * 1024
"""What one file holds at most, a single larger tensor apart."""


def write(folder: Path, source: Iterable[tuple[str, Any]], *, file_bytes: int = FILE_BYTES) -> int:
    """Write the tensors of a vLLM weight source as the checkpoint `folder`. Returns how many files have them."""
    from safetensors.torch import save_file

    where: dict[str, str] = {}
    total = 0
    with published(folder) as aside:
        for number, part in enumerate(_parts(source, file_bytes), start=1):
            name = f"model-{number:05d}.safetensors"
            save_file(part, aside / name, metadata={"format": "pt"})
            where.update(dict.fromkeys(part, name))
            total += sum(tensor.numel() * tensor.element_size() for tensor in part.values())
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (aside / INDEX).write_text(json.dumps(index, sort_keys=True), encoding="utf-8")
    return len(set(where.values()))


def _parts(source: Iterable[tuple[str, Any]], file_bytes: int) -> Iterable[dict[str, Any]]:
    part: dict[str, Any] = {}
    filled = 0
    for name, tensor in source:
        size = tensor.numel() * tensor.element_size()
        if part and filled + size > file_bytes:
            yield part
            part, filled = {}, 0
        part[name] = tensor.detach().cpu().contiguous()
        filled += size
    if part:
        yield part


def require_whole(folder: Path) -> None:
    """Raise ValueError unless the index and every file that it names are there and complete.

    A file's own header says how long it must be; that is checked as it is opened, and no weight is read.
    """
    from safetensors import SafetensorError, safe_open

    index = _index(folder)
    for name in sorted(set(index.values())):
        expected = {tensor for tensor, file in index.items() if file == name}
        try:
            with safe_open(folder / name, framework="pt") as file:
                found = set(file.keys())
        except (OSError, SafetensorError) as error:
            raise ValueError(f"half a checkpoint: {folder / name}: {error}") from error
        if found != expected:
            differing = ", ".join(sorted(found ^ expected)[:8])
            raise ValueError(f"half a checkpoint: {folder / name} does not have what its index says: {differing}")


def _index(folder: Path) -> dict[str, str]:
    try:
        index: dict[str, str] = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"half a checkpoint: {folder / INDEX}: {error or type(error).__name__}") from error
    if not index:
        raise ValueError(f"half a checkpoint: {folder / INDEX} names no tensor")
    return index
