"""Comparing two answers to the same probe prompts, number by number.

Greedy tokens have to be the same, with one exception: where the trainer itself had two tokens closer together than the
tolerance, the engine may have chosen the other one. It is taken for that only when its choice is about as probable as
the trainer's two; the continuation is not compared beyond that token, since it answers another context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness import events
from harness.evidence.check import Findings


@dataclass(frozen=True, order=True)
class Gap:
    """The largest difference found at one place, for example `version 2 probe 1 prompt[3]`."""

    size: float
    where: str


def compare_probes(
    where: str,
    reference: Sequence[events.ReferenceProbe],
    served: Sequence[events.Probe],
    tolerance: float,
    findings: Findings,
) -> list[Gap]:
    """The trainer's probes against the engine's, prompt by prompt; returns the gaps of all comparable numbers."""
    if not served:
        findings.missing.append(f"{where}: no probes of the engine")
        return []
    if [probe.prompt_ids for probe in reference] != [probe.prompt_ids for probe in served]:
        findings.wrong.append(f"{where}: engine and trainer did not probe the same prompts")
        return []
    gaps: list[Gap] = []
    for index, (ours, theirs) in enumerate(zip(reference, served, strict=True)):
        place = f"{where} probe {index}"
        expected = len(ours.prompt_ids) - 1
        if len(ours.prompt_logprobs) != expected or len(theirs.prompt_logprobs) != expected:
            findings.wrong.append(f"{place}: not {expected} prompt log-probabilities on both sides")
            continue
        gaps += compare_logprobs(f"{place} prompt", ours.prompt_logprobs, theirs.prompt_logprobs, findings)
        gaps += _compare_greedy(place, ours, theirs, tolerance, findings)
    findings.wrong += [f"{gap.where}: |diff| {gap.size:.2g}" for gap in gaps if not gap.size <= tolerance]
    return gaps


def _compare_greedy(
    place: str, ours: events.ReferenceProbe, theirs: events.Probe, tolerance: float, findings: Findings
) -> list[Gap]:
    """Tokens first; log-probabilities only as far as the tokens are the same, since later ones depend on them."""
    for name, probe in (("trainer", ours), ("engine", theirs)):
        if not probe.token_ids:
            findings.missing.append(f"{place}: no greedy tokens of the {name}")
            return []
        if len(probe.logprobs) != len(probe.token_ids):
            findings.wrong.append(f"{place}: the {name} has not one log-probability a token")
            return []
    same = _shared_length(ours.token_ids, theirs.token_ids)
    if same < max(len(ours.token_ids), len(theirs.token_ids)) and not _is_tie(ours, theirs, same, tolerance):
        findings.wrong.append(_divergence(place, ours, theirs, same))
    return compare_logprobs(f"{place} greedy", ours.logprobs[:same], theirs.logprobs[:same], findings) if same else []


def _shared_length(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many leading elements are the same."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return index
    return min(len(ours), len(theirs))


def _is_tie(ours: events.ReferenceProbe, theirs: events.Probe, at: int, tolerance: float) -> bool:
    """Whether both programs may rightly have chosen different tokens at `at`. Not known (no margin): no."""
    if at >= min(len(ours.margins), len(ours.token_ids), len(theirs.token_ids)):
        return False
    margin = ours.margins[at]
    return 0 <= margin <= tolerance and abs(ours.logprobs[at] - theirs.logprobs[at]) <= margin + tolerance


def _divergence(place: str, ours: events.Probe, theirs: events.Probe, at: int) -> str:
    if at in {len(ours.token_ids), len(theirs.token_ids)}:
        return f"{place}: {len(theirs.token_ids)} greedy tokens, trainer {len(ours.token_ids)}"
    apart = abs(ours.logprobs[at] - theirs.logprobs[at])
    return (
        f"{place}: greedy token {at} is {theirs.token_ids[at]}, trainer {ours.token_ids[at]}"
        f" (log-probabilities {apart:.2g} apart)"
    )


def compare_logprobs(where: str, before: Sequence[float], after: Sequence[float], findings: Findings) -> list[Gap]:
    """One `Gap` with the largest difference, or none (noted as missing or wrong) when there is nothing to compare."""
    if not before or not after:
        findings.missing.append(f"{where}: no log-probabilities")
        return []
    if len(before) != len(after):
        findings.wrong.append(f"{where}: {len(after)} log-probabilities against {len(before)}")
        return []
    if not all(math.isfinite(value) for value in (*before, *after)):
        findings.wrong.append(f"{where}: a log-probability is not finite")
        return []
    sizes = [abs(a - b) for a, b in zip(before, after, strict=True)]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    return [Gap(sizes[largest], f"{where}[{largest}]")]


def largest_change(
    where: str, before: Sequence[events.Probe], after: Sequence[events.Probe], findings: Findings
) -> list[Gap]:
    """The largest change of a prompt's log-probability over all prompts; none when the two cannot be compared."""
    if not before or not after:
        findings.missing.append(f"{where}: no probes")
        return []
    if [probe.prompt_ids for probe in before] != [probe.prompt_ids for probe in after]:
        findings.wrong.append(f"{where}: the probe prompts are not the same")
        return []
    gaps = [
        gap
        for index, (old, new) in enumerate(zip(before, after, strict=True))
        for gap in compare_logprobs(f"{where} probe {index}", old.prompt_logprobs, new.prompt_logprobs, findings)
    ]
    return [Gap(max(gaps).size, where)] if gaps else []
