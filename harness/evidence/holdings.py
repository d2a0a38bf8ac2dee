"""What ranks told of the parameters that they hold, compared with the trainer's digests and with each other.

A digest counts as evidence only when it is one of something: that of an empty tensor (which is what an engine says of a
weight that its backend has repacked and freed) is never equal to anything, and is counted as no evidence.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness import events
from harness.evidence.check import Expectation, Findings, counted, listing

EMPTY = hashlib.sha256(b"").hexdigest()
"""The digest of nothing."""

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

SOURCES = {"held": "by the engine's own", "whole": "whole", "part": "by rows", "multiplied": "read back"}
"""How a digest of an engine's parameter was come by, for people."""

Ranks = Sequence[tuple[str, tuple[events.HeldParameter, ...]]]


@dataclass
class Comparison:
    """The engine's parameters against the trainer's, and a count of how it went.

    `tied` has the names that stand for another one; `nothing` counts the comparisons that could not be made, `slices`
    those of a rank's part of a parameter.
    """

    tied: Mapping[str, str]
    findings: Findings
    equal: Counter[str] = field(default_factory=Counter)
    nothing: int = 0
    slices: int = 0

    def make(
        self, where: str, reference: Iterable[events.ReferenceDigest], parameters: Sequence[events.HeldParameter]
    ) -> None:
        """Each of the engine's parameters against the trainer's of that name; a tied one against what it is tied to.

        A slice is compared with the same slice of the trainer's, and with nothing else.
        """
        known = {(item.name, item.cut): item for item in reference}
        told = {self.tied.get(parameter.name, parameter.name) for parameter in parameters}
        _note_untold(where, {name for name, cut in known if cut is None} - told, self.findings)
        for parameter in parameters:
            ours = known.get((self.tied.get(parameter.name, parameter.name), parameter.cut))
            if ours is None:
                what = parameter.name if parameter.cut is None else f"{parameter.name}, {parameter.cut}"
                self.findings.missing.append(f"{where}the trainer has no digest of {what}")
                continue
            expected = ours.values_sha256 if parameter.how == "multiplied" else ours.sha256
            if not is_evidence(parameter.sha256) or not is_evidence(expected):
                self.nothing += 1
            elif parameter.sha256 == expected:
                self.equal[parameter.how] += 1
                self.slices += parameter.cut is not None
            else:
                self.findings.wrong.append(f"{where}{parameter.name} differs from the trainer's")

    def __str__(self) -> str:
        named = ", ".join(f"{self.equal[how]} {text}" for how, text in SOURCES.items() if self.equal[how])
        slices = f", {self.slices} of them slices" if self.slices else ""
        return f"{self.equal.total()} equal ({named or 'none'}){slices}, {self.nothing} without evidence"


def held_by_ranks(
    engines: Sequence[events.EngineObservation], want: Expectation, when: str, findings: Findings
) -> Ranks:
    """What each rank of each engine told, with a name of it for messages: empty where there is one rank only.

    Notes each engine of which not every rank told.
    """
    told = {engine.admin_url: engine.ranks for engine in engines}
    for expected in want.fleet:
        number = sum(1 for parameters in told.get(expected.admin_url, ()) if parameters)
        if number != expected.ranks:
            place = "" if want.engines == 1 else f"{expected.name}: "
            note = f"{place}{counted(number, 'rank')} told what they hold {when}, expected {expected.ranks}"
            if note not in findings.missing:
                findings.missing.append(note)
    return [
        (f"{want.named(engine.admin_url)} rank {index}: " if want.world_size > 1 else "", parameters)
        for engine in engines
        for index, parameters in enumerate(engine.ranks)
        if parameters
    ]


def pairs(
    place: str,
    before: Sequence[events.HeldParameter],
    after: Sequence[events.HeldParameter],
    findings: Findings,
) -> dict[str, tuple[events.HeldParameter, events.HeldParameter]]:
    """Parameters by name as they were and as they are; notes those that the engine no longer tells of."""
    now = {parameter.name: parameter for parameter in after}
    _note_untold(place, {old.name for old in before if after} - now.keys(), findings)
    return {old.name: (old, now[old.name]) for old in before if old.name in now}


def _note_untold(place: str, names: set[str], findings: Findings) -> None:
    if names:
        findings.missing.append(f"{place}{counted(len(names), 'parameter')} not told of: {listing(sorted(names))}")


def is_evidence(sha256: str | None) -> bool:
    return sha256 is not None and sha256 != EMPTY


def of_zeros(parameter: events.HeldParameter) -> str | None:
    """The digest that the parameter has when it is all zero: such a one cannot be seen to be destroyed."""
    if parameter.shape is None or parameter.dtype not in ITEM_BYTES:
        return None
    return hashlib.sha256(bytes(math.prod(parameter.shape) * ITEM_BYTES[parameter.dtype])).hexdigest()
