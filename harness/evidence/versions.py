"""The check on the version labels of single outputs: which weights each part of an answer says it comes from.

Labels only, no log-probability is read: whether the weights behind a label are the right ones is asked by
`policy.weights-*` and `policy.mismatch`. The frontend tells no labels; its rollouts are tied to a version by content.
"""

from __future__ import annotations

from harness import events
from harness.evidence.check import Expectation, Findings, counted, span
from harness.evidence.timeline import Timeline


def versions_in_outputs(run: Timeline, want: Expectation) -> Findings:
    """`policy.versions-spans`: every output names the version that was served while it was generated.

    Probes between refit k and the next name k, and no other; from k the trainer says that it sampled the next step.
    """
    findings = Findings(
        expected=f"outputs at versions {span(want.versions)} name their version, from which the trainer then samples",
        proves="outputs carry the version that served them, and it is the one that the trainer takes them to be from",
        means="an output does not carry the version that served it, or the trainer takes another one for it",
    )
    outputs = _judge_probes(run, want, findings)
    findings.seen = f"{counted(outputs, 'output')}, each of one version"
    return findings


def _judge_probes(run: Timeline, want: Expectation, findings: Findings) -> int:
    """The probes of each observation, made while nobody changes weights. How many outputs these are."""
    outputs = 0
    observations = {observed.version: observed for observed in run.require(events.Observed, findings)}
    steps = {step.step: step for step in run.of(events.Step)}
    for version in want.versions:
        engines = observations[version].engines if version in observations else ()
        told = {engine.admin_url for engine in engines if engine.spans}
        silent = [engine for engine in want.fleet if engine.admin_url not in told]
        findings.missing += [f"no output at version {version}{want.at(engine.admin_url)}" for engine in silent]
        named: set[str] = set()
        for engine, index, spans in ((e, i, spans) for e in engines for i, spans in enumerate(e.spans)):
            outputs += 1
            place = f"version {version}{want.at(engine.admin_url)} output {index}"
            if spans is None:
                findings.missing.append(f"{place} names no version")
            elif [part.version for part in spans] != [str(version)]:
                findings.wrong.append(f"{place} says {_said(spans)}")
            named |= {part.version for part in spans or ()}
        if version + 1 in steps:
            _judge_sampling(steps[version + 1], named, findings)
    return outputs


def _judge_sampling(step: events.Step, named: set[str], findings: Findings) -> None:
    """What the trainer says that it sampled the step from, against what outputs named right before it."""
    if named and named != {str(step.version_sampled)}:
        findings.wrong.append(
            f"step {step.step}: the trainer says sampled from version {step.version_sampled},"
            f" outputs right before it name {', '.join(sorted(named))}"
        )


def _said(spans: tuple[events.Span, ...]) -> str:
    return " ".join(f"{part.version}[{part.start}:{part.end}]" for part in spans) or "nothing"
