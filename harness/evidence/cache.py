"""The check on the prefix cache: no keys and values of former weights are read after a refit.

The engine is compared with itself: how many prompt tokens it says it took from its cache, and whether the first answer
after a refit has the log-probability of one that was computed without the cache.
"""

from __future__ import annotations

from harness import events
from harness.evidence.check import Expectation, Findings, span
from harness.evidence.timeline import Timeline

SEVERAL_BLOCKS = 2 * 128
"""Tokens that a repeated prompt has to take from the cache at least: two of the largest blocks, those of the CPU."""


def cache_reset(run: Timeline, want: Expectation) -> Findings:
    """`policy.cache-reset`: cached before each refit, nothing cached directly after it, and the answer cache-free."""
    findings = Findings(
        expected=f"a repeated prompt comes from the cache before refits {span(want.versions)}, none of it right after;"
        f" first token within {want.tolerance:g} of one computed without the cache",
        proves="every refit dropped what the cache held of former weights",
        means="an answer after a refit came from what the cache held of former weights",
    )
    observed = {item.version: item for item in run.require(events.Observed, findings)}
    cached: list[int] = []
    gaps: list[float] = []
    for version in want.versions:
        before, after = _probes(observed.get(version - 1)), _probes(observed.get(version))
        both = before.keys() & after.keys()
        findings.missing += [
            f"the cache was not looked at on both sides of refit {version}{want.at(engine.admin_url)}"
            for engine in want.fleet
            if engine.admin_url not in both
        ]
        for url, probe in after.items():
            if url not in both:
                continue
            where = f"refit {version}{want.at(url)}"
            cached.append(_judge_before(where, before[url], findings))
            gaps.append(_judge_after(where, probe, want, findings))
    if cached:
        findings.seen = (
            f"at least {min(cached)} of {_prompt_tokens(observed)} tokens cached before each refit, 0 right after;"
            f" |diff| <= {max(gaps):.1e}"
        )
    return findings


def _probes(observed: events.Observed | None) -> dict[str, events.CacheProbe]:
    engines = () if observed is None else observed.engines
    return {engine.admin_url: engine.cache for engine in engines if engine.cache is not None}


def _prompt_tokens(observed: dict[int, events.Observed]) -> int:
    return max((probe.prompt_tokens for item in observed.values() for probe in _probes(item).values()), default=0)


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
