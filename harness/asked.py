"""One long generation that was asked for, of an engine or of the frontend, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from harness.admin import Progress, StreamedText
from harness.answers import GeneratedChoice
from harness.calling import HttpBodyError, HttpStatusError
from harness.clock import Clock
from harness.errors import SmokestackError
from harness.events import LongGeneration, Span
from harness.vigil import in_background

Via = Literal["engine", "frontend"]
Answer = GeneratedChoice | StreamedText


@dataclass(frozen=True)
class Asked:
    """One request for `asked` tokens; its answer comes with the time of its end."""

    via: Via
    url: str
    asked: int
    progress: Progress
    answer: Future[tuple[Answer | SmokestackError, float]]

    @classmethod
    def of(cls, via: Via, url: str, ask: Callable[..., Answer], asked: int, clock: Clock) -> Asked:
        """Send it; `ask` takes sampling parameters and where to count what has come."""
        progress = Progress()

        def call() -> tuple[Answer | SmokestackError, float]:
            try:
                answer: Answer | SmokestackError = ask(sampling(asked), progress)
            except (HttpStatusError, HttpBodyError) as failed:
                answer = failed
            return answer, clock.monotonic()

        return cls(via, url, asked, progress, in_background(call))

    @property
    def failed(self) -> bool:
        return self.answer.done() and isinstance(self.answer.result()[0], SmokestackError)

    def told(self, seen: int, *, since: float, clock: Clock, waited_s: float) -> LongGeneration:
        """What became of it, `waited_s` after the refit at the latest. Its end counts from `since`."""
        answer, ended = self.answer.result() if self.answer.done() else (self._endless(waited_s), clock.monotonic())
        told = LongGeneration(
            via=self.via,
            url=self.url,
            seen=seen,
            asked=self.asked,
            tokens=0,
            status=200,
            error="",
            finish_reason=None,
            spans=None,
            ended_s=ended - since,
        )
        if isinstance(answer, SmokestackError):
            status = (answer.status or 0) if isinstance(answer, HttpStatusError) else 200
            return told.model_copy(update={"status": status, "error": answer.found or str(answer)})
        if isinstance(answer, StreamedText):
            return told.model_copy(update={"tokens": answer.tokens, "finish_reason": answer.finish_reason})
        named = answer.weight_versions
        spans = None if named is None else tuple(Span(**part.model_dump()) for part in named)
        words = {"tokens": len(answer.token_ids), "finish_reason": answer.finish_reason, "spans": spans}
        return told.model_copy(update=words)

    def _endless(self, waited_s: float) -> HttpStatusError:
        found = f"no end within {waited_s:g} s after the refit"
        return HttpStatusError("a generation did not come back", status=None, found=found, where=self.url)


def sampling(tokens: int) -> dict[str, object]:
    """Exactly so many tokens, whatever they are. Without a seed: see `OPEN_PROMPT_TOKENS` of the trainer."""
    return {"temperature": 1.0, "max_tokens": tokens, "ignore_eos": True}
