"""The check on generations that were in flight when a refit paused the engines: labels, and what became of each.

No log-probability is read. What was in flight is not taken from anybody's word: a generation that was aborted half-way
was, and so was one that two versions share, or one that ended well after it had been held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from harness import events
from harness.evidence.check import Expectation, Findings
from harness.evidence.timeline import Timeline

ABORTED, WHOLE = "abort", "length"
"""How an engine ends a generation for a pause, and one that got all the tokens it asked for."""

WELL_AFTER_S = 0.1
"""Beyond the time that an answer takes from the engine to whoever reads it, beside others."""


def generations_in_flight(run: Timeline, want: Expectation) -> Findings:
    """`policy.generations-in-flight`: `abort` ends them, `wait` lets them finish, `keep` goes on with them, once."""
    findings = Findings(
        expected="generations in flight at a refit: none mixes versions by abort and wait; by keep each survives, split"
        " once between the versions before and after",
        proves="an answer is of the version that it was begun under, unless the pause is asked to keep it",
        means="a generation in flight at a refit did not fare as its pause mode says",
    )
    observed = {item.stage: item for item in run.require(events.InFlight, findings)}
    sent = {item.stage: item for item in run.require(events.Perturbation, findings)}
    before, seen = str(want.versions[-1]), []
    for stage in get_args(events.Stage):
        if stage not in observed or stage not in sent:
            findings.missing.append(f"nothing told of generations at the refit to the {stage} weights")
            continue
        refit = _Refit(observed[stage], before, sent[stage].label)
        seen.append(refit.judge(want, findings))
        before = refit.after
    findings.seen = "; ".join(seen)
    return findings


@dataclass(frozen=True)
class _Refit:
    """One refit with the generations around it, and the labels that the trainer gave to the one before and to it."""

    told: events.InFlight
    before: str
    after: str

    @property
    def where(self) -> str:
        return f"{self.told.stage} weights, paused by {self.told.pause}"

    def judge(self, want: Expectation, findings: Findings) -> str:
        """What was in flight, in words; notes what fared otherwise, and from whom nothing was."""
        if self.told.pause != events.PAUSES[self.told.stage]:
            findings.wrong.append(f"{self.where}: expected by {events.PAUSES[self.told.stage]}")
        caught: list[events.LongGeneration] = []
        for index, one in enumerate(self.told.generations):
            wrong = self._wrong(one)
            if wrong is not None:
                findings.wrong.append(f"{self.where}: {one.via} output {index} {wrong}")
            elif self._was_caught(one):
                caught.append(one)
        engines = {one.url for one in caught if one.via == "engine"}
        if len(engines) < want.engines:
            missing = want.engines - len(engines)
            findings.missing.append(f"{self.where}: nothing was in flight at {missing} of the engines")
        if not any(one.via == "frontend" for one in caught):
            findings.missing.append(f"{self.where}: nothing was in flight through the frontend")
        did = {"abort": "aborted", "wait": "waited for", "keep": "kept"}[self.told.pause]
        again = "" if self.told.holds == 1 else f" (held at attempt {self.told.holds})"
        return f"{len(caught)} of {len(self.told.generations)} {did}{again}"

    def _wrong(self, one: events.LongGeneration) -> str | None:
        """What must not be, whether or not it was in flight."""
        if one.status != 200:
            how = f"was answered with HTTP {one.status}" if one.status else "got no answer"
            return f"{how}: {one.error[:120]}"
        if one.error:
            return f"had no sound answer: {one.error[:120]}"
        return self._misended(one) or (self._misnamed(one) if one.via == "engine" else None)

    def _misended(self, one: events.LongGeneration) -> str | None:
        cut = one.tokens != one.asked or one.finish_reason != WHOLE
        if self.told.pause != "abort" and cut:
            return f"did not survive: {one.finish_reason}, {one.tokens} of {one.asked} tokens"
        if self.told.pause == "abort" and not cut and self._went_on(one):
            return f"was not aborted: {one.finish_reason}, {one.tokens} of {one.asked} tokens"
        if self.told.pause == "abort" and cut and one.via == "engine" and one.finish_reason != ABORTED:
            return f"was cut short by {one.finish_reason}, {one.tokens} of {one.asked} tokens"
        if self.told.pause != "keep" and one.seen and one.ended_s > self.told.refitted_s + WELL_AFTER_S:
            late = one.ended_s - self.told.refitted_s
            return f"ended {late:.1f} s after the refit, which was not to begin before"
        return None

    def _misnamed(self, one: events.LongGeneration) -> str | None:
        """An engine's output has to name each of its tokens' version, one version unless it was kept."""
        if not one.tokens:
            return None
        if not one.spans:
            return "names no version"
        ends = [0, *(part.end for part in one.spans)]
        said = " ".join(f"{part.version}[{part.start}:{part.end}]" for part in one.spans)
        if [part.start for part in one.spans] != ends[:-1] or ends[-1] != one.tokens:
            return f"says {said}, which are not its {one.tokens} tokens"
        versions = [part.version for part in one.spans]
        kept = [[self.before, self.after]] if self.told.pause == "keep" else []
        # Only what had not begun when the engines were held can be of the next version alone.
        unbegun = [] if one.seen else [[self.after]]
        if versions not in ([self.before], *kept, *unbegun):
            return f"says {said}, was begun under {self.before}"
        if versions == [self.before] and self.told.pause == "keep" and self._went_on(one):
            return f"went on under {self.before}, although it was held"
        return None

    def _was_caught(self, one: events.LongGeneration) -> bool:
        """Whether the trainer's pause came while it was half-way, and decided what became of it."""
        if not self._went_on(one):
            return False
        if self.told.pause == "abort":
            return 0 < one.tokens < one.asked
        if self.told.pause == "keep" and one.via == "engine":
            return len(one.spans or ()) == 2
        return True

    def _went_on(self, one: events.LongGeneration) -> bool:
        """Whether it had begun when it was held, and ended well after."""
        return one.seen > 0 and one.ended_s > self.told.held_s + WELL_AFTER_S
