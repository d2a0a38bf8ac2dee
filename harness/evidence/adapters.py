"""The check on a LoRA adapter: served as the trainer computes it, and gone without a trace when it is unloaded.

Log-probabilities and greedy tokens of the fixed prompts only; a list of loaded adapters is not looked at.
"""

from __future__ import annotations

from harness import events
from harness.evidence.check import Expectation, Findings
from harness.evidence.compare import Gap, compare_probes, largest_change
from harness.evidence.timeline import Timeline

NO_SUCH_MODEL = 404


def adapter_served(run: Timeline, want: Expectation) -> Findings:
    """`generation.lora-adapter`: with the adapter the trainer's answers with it, without it exactly those of before."""
    findings = Findings(
        expected=f"an adapter's probes within {want.tolerance:g} of the trainer's, further from the base's; unloaded,"
        " the base's again, and no such model",
        proves="an adapter is loaded, applied to the weights of the last version, and unloaded again",
        means="the engine does not serve the adapter that it was given, or something of it stays",
    )
    told = run.require(events.Adapter, findings)
    seen = run.require(events.AdapterObserved, findings)
    if not told or not seen:
        return findings
    refused = [engine for engine in seen[-1].engines if engine.refusal is not None]
    if refused and len(refused) == len(seen[-1].engines):
        findings.not_asked = f"no engine offers adapters: {refused[0].refusal}"
        findings.seen = "not tried"
        return findings
    _require_turns(run, told[-1], seen[-1], findings)
    base = _last_probes(run, want)
    gaps: list[Gap] = []
    for engine in seen[-1].engines:
        gaps += _judge(engine, told[-1], base.get(engine.admin_url, ()), want, findings)
    if {engine.admin_url for engine in seen[-1].engines} != {engine.admin_url for engine in want.fleet}:
        findings.missing.append("not every engine was given the adapter")
    if gaps:
        findings.seen = f"|diff| <= {max(gaps).size:.1e} with it, then exactly the base's"
    return findings


def _judge(
    engine: events.AdapterObservation,
    told: events.Adapter,
    base: tuple[events.Probe, ...],
    want: Expectation,
    findings: Findings,
) -> list[Gap]:
    name = want.named(engine.admin_url)
    if engine.refusal is not None:
        findings.wrong.append(f"{name} offers no adapters, others do: {engine.refusal}")
        return []
    if engine.failed is not None:
        findings.wrong.append(f"{name}: {engine.failed}")
        return []
    where = f"adapter{want.at(engine.admin_url)}"
    gaps = compare_probes(where, told.probes, engine.loaded, want.tolerance, findings)
    unchanged = [
        gap
        for gap in largest_change(f"base to {where}", base, engine.loaded, findings)
        if not gap.size > want.tolerance
    ]
    findings.wrong += [f"{gap.where}: |diff| is only {gap.size:.1e}" for gap in unchanged]
    if not base or not engine.unloaded:
        findings.missing.append(f"{name}: no probes of the base before and after the adapter")
    elif engine.unloaded != base:
        findings.wrong.append(f"{name} does not answer as before the adapter, now that it is unloaded")
    if engine.afterwards is None:
        findings.missing.append(f"{name}: the adapter was not asked for after it was unloaded")
    elif engine.afterwards != NO_SUCH_MODEL:
        findings.wrong.append(f"{name} answers HTTP {engine.afterwards} to the unloaded adapter's name")
    return gaps


def _last_probes(run: Timeline, want: Expectation) -> dict[str, tuple[events.Probe, ...]]:
    """What each engine answered last before the adapter: with the last version's weights, restored."""
    looks: list[events.Observed | events.PerturbationObserved] = [
        *(item for item in run.of(events.Observed) if item.version == want.versions[-1]),
        *(item for item in run.of(events.PerturbationObserved) if item.stage == "restored"),
    ]
    return {engine.admin_url: engine.probes for look in looks for engine in look.engines}


def _require_turns(run: Timeline, told: events.Adapter, seen: events.AdapterObserved, findings: Findings) -> None:
    turns = [run.position(told), run.position(seen)]
    refits = [run.position(item) for item in (*run.of(events.Refit), *run.of(events.Perturbation))]
    if turns != sorted(turns) or max(refits, default=-1) > turns[0]:
        findings.wrong.append("the adapter was not looked at after the last refit")
