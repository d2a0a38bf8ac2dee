"""The check on the prefix cache: no keys and values of former weights are read after a refit.

The engine is compared with itself: how many prompt tokens it says it took from its cache, and whether the first answer
after a refit has the log-probability of one that was computed without the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import events
from harness.evidence.check import Expectation, Findings, span
from harness.evidence.timeline import Timeline

SEVERAL_BLOCKS = 2 * 128
"""Tokens that a repeated prompt has to take from the cache at least: two of the largest blocks, those of the CPU."""


def cache_reset(run: Timeline, want: Expectation) -> Findings:
    """`policy.cache-reset`: cached before each refit, nothing cached directly after it, and the answer cache-free."""
    findings = Findings(
        expected=f"a repeated prompt comes from the cache before refits {span(want.versions)} and those after the last"
        f" step, none of it right after; first token within {want.tolerance:g} of one computed without the cache",
        proves="every refit dropped what the cache held of former weights",
        means="an answer after a refit came from what the cache held of former weights",
    )
    looks = {item.version: item.engines for item in run.require(events.Observed, findings)}
    refits = [(f"refit {version}", looks.get(version - 1, ()), looks.get(version, ())) for version in want.versions]
    before = looks.get(want.versions[-1], ())
    for item in run.of(events.PerturbationObserved):
        refits.append((f"the refit to {item.stage} weights", before, item.engines))
        before = item.engines
    cached: list[int] = []
    gaps: list[float] = []
    for refit, engines_before, engines_after in refits:
        earlier, later = _probes(engines_before), _probes(engines_after)
        # What was left paused can be asked for nothing: that is another check's affair.
        paused = {engine.admin_url for engine in engines_after if engine.paused}
        for url in (engine.admin_url for engine in want.fleet):
            where = f"{refit}{want.at(url)}"
            if url in earlier and url in later:
                cached.append(_judge_before(where, earlier[url], findings))
                gaps.append(_judge_after(where, later[url], want, findings))
            elif url not in paused:
                findings.missing.append(f"the cache was not looked at on both sides of {where}")
    if cached:
        tokens = max(probe.prompt_tokens for _, _, engines in refits for probe in _probes(engines).values())
        findings.seen = (
            f"at least {min(cached)} of {tokens} tokens cached before each refit, 0 right after;"
            f" |diff| <= {max(gaps):.1e}"
        )
    return findings


def _probes(engines: Sequence[events.EngineObservation]) -> dict[str, events.CacheProbe]:
    return {engine.admin_url: engine.cache for engine in engines if engine.cache is not None}


def _judge_before(where: str, probe: events.CacheProbe, findings: Findings) -> int:
    """The tokens that a repetition took from the cache: where it takes none, an empty cache proves nothing."""
    cached = probe.again.cached_tokens
    if cached < SEVERAL_BLOCKS:
        findings.missing.append(f"{where}: only {cached} tokens of a repeated prompt were cached before it")
    return cached


def _judge_after(where: str, probe: events.CacheProbe, want: Expectation, findings: Findings) -> float:
    """How far the first answer is from the one that was computed without the cache."""
    if probe.first.cached_tokens:
        findings.wrong.append(
            f"{where}: {probe.first.cached_tokens} of {probe.prompt_tokens} tokens were still cached after it"
        )
    if probe.reference.cached_tokens:
        findings.missing.append(f"{where}: the reference itself came from the cache")
    gap = abs(probe.first.logprob - probe.reference.logprob)
    if not gap <= want.tolerance:
        findings.wrong.append(
            f"{where}: first token {probe.first.logprob:.6g}, without the cache {probe.reference.logprob:.6g}"
        )
    return gap
