"""What the engines' model is made of, and the check of a weight source against it before the first byte is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smokestack_payload.errors import ModelError, RefitError

NAMES_SHOWN = 8


@dataclass(frozen=True)
class Expected:
    """Shapes by name, and the element type, that the engines' model takes. Names in `tied` need not be sent."""

    shapes: dict[str, tuple[int, ...]]
    dtype: str
    tied: frozenset[str] = frozenset()


def read_expected(model_dir: Path, dtype: str, tied: Collection[str] = ()) -> Expected:
    """From the headers of the folder's safetensors files; no weights are read. `dtype` is what the engine runs in."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(model_dir.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            shapes.update({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
    if not shapes:
        raise ModelError(
            "the model folder has no weights", expected="*.safetensors", found="none", where=str(model_dir)
        )
    return Expected(shapes=shapes, dtype=dtype, tied=frozenset(tied))


def check_source(metas: Iterable[Any], expected: Expected) -> None:
    """Raises RefitError with all missing, extra, doubled and mismatching names. `metas` are vLLM's `ParamMeta`s."""
    announced = list(metas)
    counts = Counter(meta.name for meta in announced)
    wanted = expected.shapes.keys() - expected.tied
    mismatching = []
    for meta in announced:
        shape, dtype = tuple(meta.shape), str(meta.dtype).removeprefix("torch.")
        known = expected.shapes.get(meta.name)
        if known is not None and (known != shape or dtype != expected.dtype):
            mismatching.append(f"{meta.name} ({dtype} {list(shape)}, not {expected.dtype} {list(known)})")
    problems = {
        "missing": sorted(wanted - counts.keys()),
        "extra": sorted(counts.keys() - expected.shapes.keys()),
        "doubled": sorted(name for name, count in counts.items() if count > 1),
        "mismatching": mismatching,
    }
    found = {kind: names for kind, names in problems.items() if names}
    if found:
        raise RefitError(
            "the trainer's tensors are not the engine's: nothing was sent",
            expected=f"{len(wanted)} tensors of {expected.dtype}, named as in the served model folder",
            found="; ".join(f"{len(names)} {kind}: {_shown(names)}" for kind, names in found.items()),
            hint="trainer and engine must load the same model; wrappers (DDP, compile) put a prefix before each name",
        )


def _shown(names: list[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
