"""The check on generations that were in flight when a refit paused the engines: labels, and what became of each.

No log-probability is read. What was in flight is not taken from anybody's word: a generation that was aborted half-way
was, and so was one that two versions share, or one that ended well after it had been held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from harness import events
from harness.evidence.check import Expectation, Findings, counted
from harness.evidence.timeline import Timeline

ABORTED, WHOLE = "abort", "length"
"""How a generation ends that was ended by a pause, and one that got all the tokens it asked for."""

WELL_AFTER_S = 0.1
"""Beyond the time that an answer takes from the engine to whoever reads it, beside many others."""


def fared_as_the_pause_says(run: Timeline, want: Expectation) -> Findings:
    """`policy.generations-in-flight`: `abort` ends them, `wait` lets them finish, `keep` goes on with them, once."""
    findings = Findings(
        expected="generations in flight at a refit: none mixes versions by abort and wait; by keep each survives, split"
        " once between the versions before and after",
        proves="an answer is of the version that it was begun under, unless the pause is asked to keep it",
        means="a generation in flight at a refit did not fare as its pause mode says",
    )
    crossings = {crossing.stage: crossing for crossing in run.require(events.Crossing, findings)}
    sent = {item.stage: item for item in run.require(events.Perturbation, findings)}
    before, seen = str(want.versions[-1]), []
    for stage in get_args(events.Stage):
        if stage not in crossings or stage not in sent:
            findings.missing.append(f"nothing told of generations at the refit to the {stage} weights")
            continue
        refit = _Refit(crossings[stage], sent[stage], before)
        seen.append(refit.judge(want, findings))
        before = sent[stage].label
    modes = {crossing.pause for crossing in crossings.values()}
    findings.missing += [
        f"no pause by {mode}" for mode in get_args(events.PauseMode) if crossings and mode not in modes
    ]
    findings.seen = "; ".join(seen)
    return findings


@dataclass(frozen=True)
class _Refit:
    """One refit with the generations around it. `before` is the label that the trainer gave to the one before."""

    crossing: events.Crossing
    sent: events.Perturbation
    before: str

    @property
    def where(self) -> str:
        return f"{self.crossing.stage} weights, paused by {self.crossing.pause}"

    def judge(self, want: Expectation, findings: Findings) -> str:
        """What was in flight, in words; notes what fared otherwise, and from whom nothing was."""
        caught: list[events.InFlight] = []
        for index, one in enumerate(self.crossing.generations):
            wrong = self._wrong(one)
            if wrong is not None:
                findings.wrong.append(f"{self.where}: {one.via} output {index} {wrong}")
            elif self._was_caught(one):
                caught.append(one)
        engines = {one.url for one in caught if one.via == "engine"}
        if len(engines) < want.engines:
            findings.missing.append(
                f"{self.where}: nothing was in flight at {want.engines - len(engines)} of the engines"
            )
        if not any(one.via == "frontend" for one in caught):
            findings.missing.append(f"{self.where}: nothing was in flight through the frontend")
        ends = {"abort": "ended", "wait": "finished", "keep": "kept"}[self.crossing.pause]
        return (
            f"{len(caught)} of {counted(len(self.crossing.generations), 'generation')} {ends} by {self.crossing.pause}"
        )

    def _wrong(self, one: events.InFlight) -> str | None:
        """What must not be, whether or not it was in flight."""
        if one.status != 200:
            return f"was answered with HTTP {one.status}: {one.error[:120]}"
        if one.error:
            return f"had no sound answer: {one.error[:120]}"
        cut = one.tokens != one.asked or one.finish_reason != WHOLE
        if self.crossing.pause != "abort" and cut:
            return f"did not survive: {one.finish_reason}, {one.tokens} of {one.asked} tokens"
        if self.crossing.pause == "abort" and not cut and self._went_on(one):
            return f"was not aborted: {one.finish_reason}, {one.tokens} of {one.asked} tokens"
        misnamed = self._misnamed(one) if one.via == "engine" else None
        ended_early = self._went_on(one) and one.ended_s < self.crossing.refitted_s
        if misnamed is None and self.crossing.pause == "keep" and ended_early:
            return f"went on under {self.before}, although it was held"
        return misnamed

    def _misnamed(self, one: events.InFlight) -> str | None:
        """An engine's output has to name each of its tokens' version, one version unless it was kept."""
        if one.spans is None or (one.tokens and not one.spans):
            return "names no version"
        ends = [0, *(part.end for part in one.spans)]
        said = " ".join(f"{part.version}[{part.start}:{part.end}]" for part in one.spans) or "nothing"
        if [part.start for part in one.spans] != ends[:-1] or ends[-1] != one.tokens:
            return f"says {said}, which are not its {one.tokens} tokens"
        after = self.sent.label
        allowed = [[], [self.before], [after]] + ([[self.before, after]] if self.crossing.pause == "keep" else [])
        if [part.version for part in one.spans] not in allowed:
            return f"says {said}, was begun under {self.before}"
        return None

    def _was_caught(self, one: events.InFlight) -> bool:
        """Whether the trainer's pause came while it was half-way."""
        if self.crossing.pause == "abort":
            return bool(one.seen) and 0 < one.tokens < one.asked
        if self.crossing.pause == "wait":
            return self._went_on(one)
        if one.via == "engine":
            return len(one.spans or ()) == 2
        return bool(one.seen) and one.ended_s > self.crossing.refitted_s + WELL_AFTER_S

    def _went_on(self, one: events.InFlight) -> bool:
        """Whether it had begun when it was held, and ended well after."""
        return bool(one.seen) and one.ended_s > self.crossing.held_s + WELL_AFTER_S
