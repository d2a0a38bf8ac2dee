"""Checks on the weights themselves, parameter by parameter. They read content only: no label is looked at.

How digests are compared, and which count as evidence, is in `holdings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from harness import events
from harness.evidence.check import TOLERANCE, Expectation, Findings, counted, span
from harness.evidence.compare import Gap, largest_change
from harness.evidence.holdings import Comparison, held_by_ranks, is_evidence, of_zeros, pairs
from harness.evidence.policy import all_observed, observed_by_version
from harness.evidence.timeline import Timeline

STAGES: tuple[events.Stage, ...] = get_args(events.Stage)


def weights_destroyed(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-destroyed`: before transfer 0 the engine was made visibly wrong, each parameter of it."""
    findings = Findings(
        expected=f"probes more than {TOLERANCE:g} from those before, no parameter as it was, before transfer 0",
        proves="whatever is right afterwards came with the transfers",
        means="the engine was not destroyed before the first transfer: what it serves may not be what was sent",
    )
    destroyed = run.require(events.Destroyed, findings)
    before = before_transfer(run, findings)
    if not destroyed or before is None:
        return findings
    first, place = first_transfer(run), run.position(destroyed[0])
    if place < run.position(before) or (first is not None and place > first):
        findings.wrong.append("it was not destroyed between the first observation and transfer 0")
    gaps = _visible_changes("destroyed", before.engines, destroyed[0].engines, want, findings)
    after = dict(held_by_ranks(destroyed[0].engines, want, "after the destruction", findings))
    gone = nothing = 0
    for where, parameters in held_by_ranks(before.engines, want, "before transfer 0", findings):
        for name, (old, new) in pairs(f"destroyed: {where}", parameters, after.get(where, ()), findings).items():
            if not (is_evidence(old.sha256) and is_evidence(new.sha256)):
                nothing += 1
            elif old.sha256 != new.sha256:
                gone += 1
            elif old.sha256 == of_zeros(old):
                nothing += 1
            else:
                findings.wrong.append(f"{where}{name} is still what it was")
    if gaps:
        findings.seen = f"|diff| >= {min(gaps).size:.1e}; {counted(gone, 'parameter')} gone, {nothing} unseen"
    return findings


def weights_digests(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-digests`: at each version what the engine can show of its parameters is the trainer's."""
    findings = Findings(
        expected=f"each parameter that the engine shows has the trainer's digest, for versions {span(want.versions)}"
        " and the repeated and perturbed weights",
        proves="each parameter that gave evidence is in the engine as it is in the trainer, bit for bit",
        means="a parameter in the engine is not the trainer's",
    )
    compared = Comparison(_tied(run, findings), findings)
    trainer = {item.version: item.parameters for item in run.require(events.TrainerWeights, findings)}
    observed = observed_by_version(run, findings)
    for version in want.versions:
        if version not in trainer or version not in observed:
            who = "trainer" if version not in trainer else "engine"
            findings.missing.append(f"nothing from the {who} at version {version}")
            continue
        for where, parameters in held_by_ranks(observed[version].engines, want, f"at version {version}", findings):
            compared.make(f"version {version}: {where}", trainer[version], parameters)
    sent = {item.stage: item.parameters for item in run.of(events.Perturbation)}
    for item in run.of(events.PerturbationObserved):
        # What came back is compared with what was there, by `weights_restored`.
        if item.stage in sent and item.stage != "restored":
            for where, parameters in held_by_ranks(item.engines, want, item.stage, findings):
                compared.make(f"{item.stage}: {where}", sent[item.stage], parameters)
    if not compared.equal:
        findings.missing.append("no parameter with evidence")
    findings.seen = str(compared)
    return findings


def weights_restored(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-restored`: a refit to perturbed weights shows; the one back returns exactly what was there."""
    findings = Findings(
        expected=f"perturbed: probes more than {TOLERANCE:g} away, no parameter as it was; restored: exactly version"
        f" {want.versions[-1]} again",
        proves="a refit carries any weights, and only they decide what the engine answers",
        means="after a refit to perturbed weights and back, the engine is not what it was",
    )
    last = want.versions[-1]
    stages = {item.stage: item for item in run.require(events.PerturbationObserved, findings)}
    sent = {item.stage: item for item in run.require(events.Perturbation, findings)}
    final = [item for item in run.require(events.Observed, findings) if item.version == last]
    for stage in STAGES:
        if stage not in stages or stage not in sent:
            findings.missing.append(f"nothing observed of the {stage} weights")
    if not final or len(stages) < len(STAGES) or findings.missing:
        findings.missing += [] if final else [f"no observation at version {last}"]
        return findings
    _require_turns(run, final[-1], sent, stages, findings)
    gaps = _visible_changes("perturbed", final[-1].engines, stages["perturbed"].engines, want, findings)
    _require_all_changed(final[-1].engines, stages["perturbed"].engines, want, findings)
    all_observed(stages["repeated"].engines, "with the repeated weights", want, findings)
    _require_same(final[-1].engines, stages["restored"].engines, want, findings)
    if gaps:
        findings.seen = f"|diff| >= {min(gaps).size:.1e}, then exactly as before"
    return findings


def _require_turns(
    run: Timeline,
    final: events.Observed,
    sent: Mapping[events.Stage, events.Perturbation],
    stages: Mapping[events.Stage, events.PerturbationObserved],
    findings: Findings,
) -> None:
    turns = [final, *(event for stage in STAGES for event in (sent[stage], stages[stage]))]
    places = [run.position(event) for event in turns]
    if places != sorted(places):
        findings.wrong.append("perturbation, restoration and their observations are out of order")


def _require_all_changed(
    before: Sequence[events.EngineObservation],
    after: Sequence[events.EngineObservation],
    want: Expectation,
    findings: Findings,
) -> None:
    there = dict(held_by_ranks(after, want, "perturbed", findings))
    for where, parameters in held_by_ranks(before, want, "before the perturbation", findings):
        for name, (old, new) in pairs(f"perturbed: {where}", parameters, there.get(where, ()), findings).items():
            if is_evidence(old.sha256) and old.sha256 == new.sha256:
                findings.wrong.append(f"perturbed: {where}{name} is what it was")


def _require_same(
    before: Sequence[events.EngineObservation],
    after: Sequence[events.EngineObservation],
    want: Expectation,
    findings: Findings,
) -> None:
    """Same tokens, the very same numbers, and the same digests."""
    restored = {engine.admin_url: engine for engine in after}
    for engine in before:
        back = restored.get(engine.admin_url)
        if back is None or not back.probes or not engine.probes:
            findings.missing.append(f"no probes of {want.named(engine.admin_url)} after the restoration")
        elif back.probes != engine.probes:
            which = [i for i, pair in enumerate(zip(engine.probes, back.probes, strict=False)) if pair[0] != pair[1]]
            name = want.named(engine.admin_url)
            findings.wrong.append(f"restored: probes {which} at {name} are not exactly those of before")
    there = dict(held_by_ranks(after, want, "restored", findings))
    for where, parameters in held_by_ranks(before, want, "before the perturbation", findings):
        changed = [
            name
            for name, (old, new) in pairs(f"restored: {where}", parameters, there.get(where, ()), findings).items()
            if is_evidence(old.sha256) and old.sha256 != new.sha256
        ]
        findings.wrong += [f"restored: {where}{name} is not what it was" for name in changed]


def _visible_changes(
    what: str,
    before: Sequence[events.EngineObservation],
    after: Sequence[events.EngineObservation],
    want: Expectation,
    findings: Findings,
) -> list[Gap]:
    """The largest change of each engine's probes, which has to show."""
    earlier = {engine.admin_url: engine for engine in before}
    for when, engines in ((f"before they were {what}", before), (what, after)):
        all_observed(engines, when, want, findings)
    gaps: list[Gap] = []
    for engine in after:
        if engine.admin_url in earlier:
            where = f"{what}{want.at(engine.admin_url)}"
            gaps += largest_change(where, earlier[engine.admin_url].probes, engine.probes, findings)
    findings.wrong += [f"{gap.where}: |diff| is only {gap.size:.1e}" for gap in gaps if not gap.size > TOLERANCE]
    return gaps


def _tied(run: Timeline, findings: Findings) -> dict[str, str]:
    ready = run.require(events.TrainerReady, findings)
    return dict(ready[0].tied) if ready else {}


def before_transfer(run: Timeline, findings: Findings) -> events.Observed | None:
    """The first observation of the stack as it was started; None, and noted, without one."""
    found = (item for item in run.require(events.Observed, findings) if item.version == events.BEFORE_TRANSFER)
    first = next(found, None)
    if first is None:
        findings.missing.append("no observation before transfer 0")
    return first


def first_transfer(run: Timeline) -> int | None:
    """Where the first bytes went: the forming of the group comes right before them."""
    firsts = [*run.of(events.TransferInitialised), *run.of(events.Refit)]
    return min((run.position(event) for event in firsts), default=None)
