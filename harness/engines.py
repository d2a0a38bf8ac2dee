"""Which engines a run is asked to have: how many, and of how many ranks each.

An engine is one vLLM server with a sidecar; its ranks hold slices of one copy of the model (tensor parallelism).
Whether the machine and the model can bear them is another question (see `fitness`).
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.errors import UsageError

MAX_ENGINES, MAX_TENSOR_PARALLEL = 64, 64
"""Far above what one machine runs; a larger number is a slip."""


def engines_asked_for(options: Mapping[str, object]) -> tuple[int, ...]:
    """Ranks of each engine, from the parsed options. Raises UsageError for two ways at once."""
    each = options.get("engine") or []
    assert isinstance(each, list)
    uniform = {name: options[name] for name in ("engines", "tensor_parallel") if name in options}
    if each and uniform:
        given = " and ".join(f"--{name.replace('_', '-')} {value}" for name, value in uniform.items())
        raise UsageError(
            "the engines are given in two ways",
            expected="either --engine once for each, or --engines and --tensor-parallel",
            found=f"{' '.join(f'--engine tp={ranks}' for ranks in each)} beside {given}",
            hint="leave out --engine, or the others",
        )
    if len(each) > MAX_ENGINES:
        raise UsageError(
            "too many engines",
            expected=f"at most {MAX_ENGINES}",
            found=str(len(each)),
            hint=f"give --engine {MAX_ENGINES} times at most",
        )
    if each:
        return tuple(each)
    count, ranks = uniform.get("engines", 1), uniform.get("tensor_parallel", 1)
    assert isinstance(count, int) and isinstance(ranks, int)
    return (ranks,) * count
