"""The check on names, types and shapes before the first byte: what a refit brings is what each engine's model has.

A rank of a tensor-parallel engine tells the slice that it has of a parameter; the ranks' slices have to be the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness import events
from harness.evidence.check import Expectation, Findings, counted, listing
from harness.evidence.content import before_transfer, first_transfer
from harness.evidence.holdings import held_by_ranks
from harness.evidence.timeline import Timeline


def weights_covered(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-covered`: before the first byte, trainer and engine name the same tensors, each once."""
    findings = Findings(
        expected="each parameter of the engine announced once by the trainer, of its type and shape, before transfer 0",
        proves="a refit brings each of the engine's parameters, and nothing else",
        means="what the trainer sends is not what the engine's model has",
    )
    ready = run.require(events.TrainerReady, findings)
    before = before_transfer(run, findings)
    if not ready or before is None:
        return findings
    first = first_transfer(run)
    if first is not None and max(run.position(ready[0]), run.position(before)) > first:
        findings.wrong.append("names were compared only after the first transfer")
    ranks = held_by_ranks(before.engines, want, "before transfer 0", findings)
    for where, parameters in ranks:
        _cover(where, ready[0], parameters, findings)
    slices = sum(_assemble(engine, ready[0], want, findings) for engine in before.engines)
    if ranks:
        tied = sum(parameter.name in ready[0].tied for parameter in ranks[0][1])
        findings.seen = f"{counted(len(ready[0].tensors), 'tensor')} sent once each, {tied} tied"
        findings.seen += f"; {slices} in slices, whole together" if slices else ""
    return findings


def _assemble(
    engine: events.EngineObservation, ready: events.TrainerReady, want: Expectation, findings: Findings
) -> int:
    """The slices that the engine's ranks have of a parameter, laid together: no number of it may be in none of them.

    How many parameters are in slices.
    """
    cuts: dict[str, list[events.Cut]] = {}
    for parameter in (parameter for rank in engine.ranks for parameter in rank):
        if parameter.cut is not None:
            cuts.setdefault(parameter.name, []).append(parameter.cut)
    shapes = {tensor.name: tensor.shape for tensor in ready.tensors}
    for name, found in cuts.items():
        shape = shapes.get(ready.tied.get(name, name), ())
        dim, end = found[0].dim, 0
        for cut in sorted(found, key=lambda one: one.start):
            end = max(end, cut.stop) if cut.start <= end else end
        size = shape[dim] if dim < len(shape) else None
        if len(found) != len(engine.ranks) or {cut.dim for cut in found} != {dim} or end != size:
            findings.wrong.append(f"{want.named(engine.admin_url)}: its ranks' slices of {name} are not the whole")
    return len(cuts)


def _cover(
    where: str, ready: events.TrainerReady, parameters: Sequence[events.HeldParameter], findings: Findings
) -> None:
    sent = Counter(tensor.name for tensor in ready.tensors)
    had = Counter(parameter.name for parameter in parameters)
    known = sent.keys() | {name for name, target in ready.tied.items() if target in sent}
    for kind, names in (
        ("not sent", had.keys() - known),
        ("not in the engine", sent.keys() - had.keys()),
        ("sent more than once", {name for name, count in sent.items() if count > 1}),
        ("twice in the engine", {name for name, count in had.items() if count > 1}),
    ):
        if names:
            findings.wrong.append(f"{where}{counted(len(names), 'parameter')} {kind}: {listing(sorted(names))}")
    tensors = {tensor.name: tensor for tensor in ready.tensors}
    for parameter in parameters:
        tensor = tensors.get(ready.tied.get(parameter.name, parameter.name))
        if tensor is None:
            continue
        if tensor.dtype != parameter.dtype or parameter.shape not in {None, _expected_shape(tensor, parameter.cut)}:
            of = "" if parameter.cut is None else f" ({parameter.cut})"
            findings.wrong.append(
                f"{where}{parameter.name} is {parameter.dtype} {list(parameter.shape or ())}{of},"
                f" sent as {tensor.dtype} {list(tensor.shape)}"
            )


def _expected_shape(tensor: events.AnnouncedTensor, cut: events.Cut | None) -> tuple[int, ...]:
    """Of the whole tensor, or of a rank's slice of it; no shape at all for a slice that it cannot have."""
    if cut is None:
        return tensor.shape
    if cut.dim >= len(tensor.shape) or not cut.start <= cut.stop <= tensor.shape[cut.dim]:
        return ()
    return (*tensor.shape[: cut.dim], cut.stop - cut.start, *tensor.shape[cut.dim + 1 :])
