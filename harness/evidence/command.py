"""Checks of a run whose trainer is a command of the caller's: what the stack itself shows, and nothing that it says.

What only a trainer of ours could bear witness to is not judged, and every such check says so. As elsewhere, a label
proves nothing by itself: it is judged apart from the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness import events
from harness.evidence.check import TOLERANCE, Expectation, Findings, counted
from harness.evidence.compare import Gap, largest_change
from harness.evidence.holdings import is_evidence
from harness.evidence.policy import all_observed, told_labels
from harness.evidence.stack import judge_paused
from harness.evidence.timeline import Timeline, first_and_last


def command_ended(run: Timeline, want: Expectation) -> Findings:
    """`training.command`: the command ended by itself within its time, with exit status 0."""
    findings = Findings(
        expected="the command ends by itself, in time and with exit status 0",
        proves="the trainer says that it did its work",
        means="the trainer says that it failed, or did not end",
    )
    for ended in run.require(events.CommandEnded, findings):
        if ended.returncode is None:
            findings.wrong.append(f"it still ran after {ended.limit_s:g} s")
        elif ended.returncode != 0:
            findings.wrong.append(f"exit status {ended.returncode}")
        findings.seen = f"exit status 0 after {ended.seconds:.1f} s"
    return findings


def versions_advance(run: Timeline, want: Expectation) -> Findings:
    """`policy.versions-advance`: engines and sidecars end at one new version, and were never seen to go back."""
    findings = Findings(
        expected="engine and sidecar name one other version than before the command, and never went back",
        proves="engine and sidecar name a version that the command set",
        means="the version that engine or sidecar name is not one that the command has just set",
    )
    before, after = _surveys(run, want, findings)
    if before is None or after is None:
        return findings
    for old, new in _pairs(before, after, findings):
        silent = [who for who, label in told_labels(new, want) if label is None]
        if silent:
            findings.missing.append(f"no label from the {silent[0]} of {new.admin_url} after the command")
        elif new.engine_label == old.engine_label:
            findings.wrong.append(f"{new.admin_url} has version {new.engine_label!r}, as before the command")
        elif len({label for _, label in told_labels(new, want)}) > 1:
            findings.wrong.append(f"{new.admin_url}: engine label {new.engine_label!r}, sidecar {new.sidecar_label!r}")
    last = sorted({str(engine.engine_label) for engine in after.engines})
    if len(last) > 1:
        findings.wrong.append(f"the engines end at different versions: {', '.join(last)}")
    seen = labels_seen(run, want)
    findings.wrong += [f"version {new} came after {old}" for old, new in pairwise(_numbers(seen)) if new < old]
    findings.seen = f"labels {' '.join(seen)}"
    return findings


def labels_seen(run: Timeline, want: Expectation) -> list[str]:
    """The versions that all engines and sidecars were seen to name alike, in the order of their first sight.

    Seen by looking again and again: what was replaced between two looks is not among them.
    """
    states: list[Sequence[events.EngineLabels | events.EngineObservation]] = [
        entry.engines for entry in run.entries if isinstance(entry, events.LabelsSeen | events.Surveyed)
    ]
    seen: list[str] = []
    for engines in states:
        labels = {label for engine in engines for _, label in told_labels(engine, want)}
        if len(labels) == 1 and None not in labels:
            (label,) = labels
            if not seen or seen[-1] != label:
                seen.append(str(label))
    return seen


def versions_seen(run: Timeline, want: Expectation) -> list[int]:
    """Those of them that are numbers, each once, in order: what a verdict has as its policy versions."""
    return sorted(set(_numbers(labels_seen(run, want))))


def _numbers(labels: Sequence[str]) -> list[int]:
    return [int(label) for label in labels if label.isascii() and label.isdecimal()]


def weights_changed(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-changed`: after the command every engine computes with other weights than before it."""
    findings = Findings(
        expected=f"on every engine a parameter with another digest, or probes more than {TOLERANCE:g} away",
        proves="the command moved the weights that the engine computes with",
        means="the command did not move the weights that the engine computes with",
    )
    before, after = _surveys(run, want, findings)
    if before is None or after is None:
        return findings
    gaps: list[Gap] = []
    changed = compared = 0
    for old, new in _pairs(before, after, findings):
        moved = largest_change("before to after", old.probes, new.probes, findings)
        digests, equal = _digests(old, new)
        if moved and not max(moved).size > TOLERANCE and digests == equal:
            told = f"none of {digests} digests changed" if digests else "no digests were told"
            findings.wrong.append(f"{new.admin_url}: |diff| is only {max(moved).size:.1e}, and {told}")
        gaps += moved
        changed, compared = changed + digests - equal, compared + digests
    _require_alike(after.engines, want.tolerance, findings)
    if gaps:
        findings.seen = f"|diff| >= {min(gaps).size:.1e}; {changed} of {counted(compared, 'parameter')} changed"
    return findings


def _require_alike(engines: Sequence[events.EngineObservation], tolerance: float, findings: Findings) -> None:
    """One policy: engines that answer differently would be rollouts of several at once."""
    for one, other in pairwise(engines):
        apart = largest_change(f"{one.admin_url} to {other.admin_url}", one.probes, other.probes, findings)
        findings.wrong += [f"{gap.where}: |diff| {gap.size:.1e}" for gap in apart if not gap.size <= tolerance]


def _digests(old: events.EngineObservation, new: events.EngineObservation) -> tuple[int, int]:
    """How many parameters can be compared over all ranks, and how many of them have the same digest."""
    compared = equal = 0
    for one, other in zip(old.ranks, new.ranks, strict=False):
        earlier = {parameter.name: parameter.sha256 for parameter in one}
        for parameter in other:
            digest = earlier.get(parameter.name)
            if is_evidence(digest) and is_evidence(parameter.sha256):
                compared += 1
                equal += parameter.sha256 == digest
    return compared, equal


def not_paused(run: Timeline, want: Expectation) -> Findings:
    """`engine.not-paused`: after the command every engine and sidecar says that it is not paused."""
    findings = Findings(
        expected=f"{counted(want.engines, 'engine')} not paused after the command",
        proves="every engine was resumed",
        means="an engine was left paused: it answers health checks, and generations hang",
    )
    _, after = _surveys(run, want, findings)
    for engine in after.engines if after is not None else ():
        judge_paused(engine, engine.admin_url, findings)
    findings.seen = f"{counted(want.engines, 'engine')} not paused"
    return findings


def _surveys(
    run: Timeline, want: Expectation, findings: Findings
) -> tuple[events.Surveyed | None, events.Surveyed | None]:
    """The stack before and after the command; noted where one is missing, too early, or of other engines."""
    before, after = first_and_last(run.require(events.Surveyed, findings), "before", "after")
    ended = [run.position(item) for item in run.of(events.CommandEnded)]
    for when, item in (("before", before), ("after", after)):
        if item is None:
            findings.missing.append(f"the stack was not looked at {when} the command")
        else:
            all_observed(item.engines, f"{when} the command", want, findings)
    if after is not None and ended and run.position(after) < max(ended):
        findings.missing.append("the last look at the stack was taken before the command ended")
    return before, after


def _pairs(
    before: events.Surveyed, after: events.Surveyed, findings: Findings
) -> list[tuple[events.EngineObservation, events.EngineObservation]]:
    earlier = {engine.admin_url: engine for engine in before.engines}
    findings.missing += [
        f"{engine.admin_url} was not looked at before" for engine in after.engines if engine.admin_url not in earlier
    ]
    return [(earlier[engine.admin_url], engine) for engine in after.engines if engine.admin_url in earlier]
