"""Checks on the served policy. Labels and content are judged apart, and never fail for each other's reason.

A label can move without weights and weights without a label, so each version needs both: `versions_advance` reads
labels only, `weights_match` and `weights_changed` read log-probabilities only.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import events
from harness.evidence.check import TOLERANCE, Expectation, Findings, counted, listing, span
from harness.evidence.compare import Gap, compare_probes, largest_change
from harness.evidence.timeline import Timeline

PROBED = 4
"""How many different prompts engine and trainer are probed with, at each version."""


def versions_advance(run: Timeline, want: Expectation) -> Findings:
    """`policy.versions-advance`: after refit k, engine and sidecar both say version k. Reads labels only."""
    findings = Findings(
        expected=f"labels {span(want.versions)} on engine and sidecar, each read after its refit",
        proves="engine and sidecar name the version that was sent last",
        means="the version that engine or sidecar name is not the one that was sent last",
    )
    observed = observed_by_version(run, findings)
    for version in want.versions:
        for engine in _engines_at(version, observed, want, findings):
            name = want.named(engine.admin_url)
            for who, label in told_labels(engine, want):
                if label is None:
                    findings.missing.append(f"version {version}: no label from the {who} of {name}")
                elif label != str(version):
                    findings.wrong.append(f"version {version}: {who} label {label!r} at {name}")
        _require_order(run, version, observed.get(version), findings)
    _judge_perturbation_labels(run, want, findings)
    findings.seen = "labels " + (" ".join(map(str, agreed_versions(run, want))) or "agree on no version")
    return findings


def _judge_perturbation_labels(run: Timeline, want: Expectation, findings: Findings) -> None:
    """The refits after the last step set labels like any other: two of their own, then the last version's again."""
    last = want.versions[-1]
    wanted = {"repeated": f"{last}-repeated", "perturbed": f"{last}-perturbed", "restored": str(last)}
    for item in run.of(events.PerturbationObserved):
        for engine in all_observed(item.engines, f"with the {item.stage} weights", want, findings):
            for who, label in told_labels(engine, want):
                if label != wanted[item.stage]:
                    name = want.named(engine.admin_url)
                    findings.wrong.append(f"{item.stage} weights: {who} label {label!r} at {name}")


def told_labels(
    engine: events.EngineObservation | events.EngineLabels, want: Expectation
) -> list[tuple[str, str | None]]:
    """Who names a version of this engine, and which."""
    sidecar = [("sidecar", engine.sidecar_label)] if want.sidecars and want.engine_labels else []
    return [("engine", engine.engine_label), *sidecar]


def agreed_versions(run: Timeline, want: Expectation) -> list[int]:
    """The versions that were observed as such: every engine and every sidecar said exactly this number."""
    latest = {item.version: item for item in run.of(events.Observed)}
    return sorted(
        version
        for version, item in latest.items()
        if item.engines
        and all(label == str(version) for engine in item.engines for _, label in told_labels(engine, want))
    )


def _require_order(run: Timeline, version: int, observed: events.Observed | None, findings: Findings) -> None:
    """The observation belongs to its version only if it lies between this refit and the next."""
    if observed is None:
        return
    place, own, following = run.position(observed), run.last_refit(version), run.last_refit(version + 1)
    if (own is not None and place < own) or (following is not None and place > following):
        findings.wrong.append(f"version {version} was not read between its refit and the next")


def weights_match(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-match`: for each version the engine computes what the trainer computes with these weights."""
    findings = Findings(
        expected=f"same greedy tokens, log-probabilities within {want.tolerance:g}, for versions {span(want.versions)}"
        " and the last one's weights once more",
        proves="the engine computes with the trainer's weights of the same version",
        means="the engine does not compute with the trainer's weights of the same version",
    )
    trainer = {probe.version: probe.probes for probe in run.require(events.TrainerProbe, findings)}
    observed = observed_by_version(run, findings)
    gaps: list[Gap] = []
    for version in want.versions:
        reference = trainer.get(version)
        if not reference:
            findings.missing.append(f"no trainer probe of version {version}")
            continue
        asked = len({probe.prompt_ids for probe in reference})
        if asked < PROBED:
            findings.missing.append(f"{counted(asked, 'prompt')} probed at version {version}, expected {PROBED}")
        for engine in _engines_at(version, observed, want, findings):
            where = f"version {version}{want.at(engine.admin_url)}"
            gaps += compare_probes(where, reference, engine.probes, want.tolerance, findings)
    for item in run.of(events.PerturbationObserved):
        reference = trainer.get(want.versions[-1])
        if item.stage == "repeated" and reference:
            for engine in all_observed(item.engines, "with the repeated weights", want, findings):
                where = f"repeated{want.at(engine.admin_url)}"
                gaps += compare_probes(where, reference, engine.probes, want.tolerance, findings)
    if gaps:
        worst = max(gaps)
        findings.seen = f"|diff| <= {worst.size:.1e}, {worst.where}"
    return findings


def weights_changed(run: Timeline, want: Expectation) -> Findings:
    """`policy.weights-changed`: each version's log-probabilities of the fixed prompts differ from the previous one's.

    Version 0 is compared with what was served before transfer 0 only where that has to differ: a folder or a named
    real model is served with exactly the weights that transfer 0 sends again.
    """
    first = 0 if want.starts_untrained else 1
    findings = Findings(
        expected=f"each of versions {span(range(first, want.steps + 1))} more than {TOLERANCE:g} from the one before",
        proves="every refit moved the weights that the engine computes with",
        means="a refit did not move the weights that the engine computes with",
    )
    observed = observed_by_version(run, findings)
    idle = {step.step for step in run.of(events.Step) if step.grad_norm == 0}
    gaps: list[Gap] = []
    for version in range(first, want.steps + 1):
        before = {engine.admin_url: engine for engine in _engines_at(version - 1, observed, want, findings)}
        for engine in _engines_at(version, observed, want, findings):
            earlier = before.get(engine.admin_url)
            if earlier is not None:
                cause = ", a step without gradient" if version in idle else ""
                where = f"{_step_name(version)}{want.at(engine.admin_url)}{cause}"
                gaps += largest_change(where, earlier.probes, engine.probes, findings)
    if gaps:
        least = min(gaps)
        findings.seen = f"|diff| >= {least.size:.1e}, {least.where}"
    findings.wrong += [f"{gap.where}: |diff| is only {gap.size:.1e}" for gap in gaps if not gap.size > TOLERANCE]
    return findings


def observed_by_version(run: Timeline, findings: Findings) -> dict[int, events.Observed]:
    """The observation of each version. Two of one version are none: which of them should be believed?"""
    observed: dict[int, events.Observed] = {}
    for item in run.require(events.Observed, findings):
        if item.version in observed:
            findings.wrong.append(f"{_name_of(item.version)} was observed twice")
        observed[item.version] = item
    return observed


def _engines_at(
    version: int, observed: dict[int, events.Observed], want: Expectation, findings: Findings
) -> tuple[events.EngineObservation, ...]:
    """The engines observed at `version`; notes it when they are not all there, or not all different."""
    name = _name_of(version) if version == events.BEFORE_TRANSFER else f"at {_name_of(version)}"
    if version not in observed:
        _note_once(f"no observation {name}", findings)
        return ()
    return all_observed(observed[version].engines, name, want, findings)


def all_observed(
    engines: Sequence[events.EngineObservation], when: str, want: Expectation, findings: Findings
) -> tuple[events.EngineObservation, ...]:
    """`engines`; notes each engine of the run that is not among them, and that each is there once."""
    seen = [engine.admin_url for engine in engines]
    wanted = {engine.admin_url: engine.name for engine in want.fleet}
    absent = [name for url, name in wanted.items() if url not in seen]
    others = [f"{url}, which is none of the run's engines" for url in seen if url not in wanted]
    twice = [f"{wanted[url]} more than once" for url in wanted if seen.count(url) > 1]
    if absent:
        _note_once(f"{listing(absent)} not observed {when}", findings)
    if others or twice:
        _note_once(f"observed {when}: {listing([*others, *twice])}", findings)
    return tuple(engines)


def _note_once(text: str, findings: Findings) -> None:
    if text not in findings.missing:
        findings.missing.append(text)


def _name_of(version: int) -> str:
    return "before transfer 0" if version == events.BEFORE_TRANSFER else f"version {version}"


def _step_name(version: int) -> str:
    return "start to 0" if version == 0 else f"version {version - 1} to {version}"
