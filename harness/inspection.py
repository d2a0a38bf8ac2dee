"""What one engine tells of its weights: its answers to probe prompts, and what each of its ranks holds.

Probe requests ask for the prompt's log-probabilities as well, and vLLM does not read its prefix cache for such a
request, so that every number is computed with the weights of now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.admin import EngineAdmin
from harness.answers import CompletionAnswer, Generated, GeneratedChoice, RankContents
from harness.errors import SmokestackError
from harness.events import CacheAnswer, CacheProbe, Cut, EngineObservation, HeldParameter, Probe, Span

Spans = tuple[Span, ...] | None


class ObservationError(SmokestackError):
    """An engine answered a probe with something that cannot be an answer to it."""

    kind = "observation"
    exit_code = 30


def probe(
    engine: EngineAdmin, model: str, prompt: Sequence[int], *, new_tokens: int, stop_token_ids: Sequence[int]
) -> tuple[Probe, Spans]:
    """The engine's greedy continuation of `prompt`, and the prompt under teacher forcing; with the version labels."""
    sampling = {
        "temperature": 0.0,
        "max_tokens": new_tokens,
        "logprobs": 0,
        "prompt_logprobs": 0,
        "stop_token_ids": list(stop_token_ids),
    }
    answer = engine.generate(model, prompt, sampling)
    choice = answer.choices[0]
    logprobs = choice.token_logprobs()
    if len(logprobs) != len(choice.token_ids):
        raise ObservationError(
            "a probe's tokens and log-probabilities do not fit together",
            expected=f"{len(choice.token_ids)} log-probabilities",
            found=str(len(logprobs)),
            where=engine.http.base_url,
        )
    probed = Probe(
        prompt_ids=tuple(prompt),
        token_ids=tuple(choice.token_ids),
        logprobs=tuple(logprobs),
        prompt_logprobs=teacher_forced(prompt, answer, engine.http.base_url),
    )
    return probed, spans_of(choice, engine.http.base_url)


def spans_of(choice: GeneratedChoice, where: str) -> Spans:
    """Under which version label each part of an output was generated; None where the server tells none.

    Each token has exactly one label: an answer that leaves tokens out, or names them twice, is refused.
    """
    if choice.weight_versions is None:
        return None
    spans = tuple(Span(**span.model_dump()) for span in choice.weight_versions)
    ends = [0, *(span.end for span in spans)]
    begun = [*(span.start for span in spans), len(choice.token_ids)]
    if ends != begun or any(span.start >= span.end for span in spans):
        raise ObservationError(
            "the version labels of a probe do not cover its tokens",
            expected=f"spans of tokens 0 to {len(choice.token_ids)} without gaps or overlaps",
            found=" ".join(f"{span.version}[{span.start}:{span.end}]" for span in spans) or "no span",
            where=where,
        )
    return spans


def probe_cache(engine: EngineAdmin, model: str, prompt: Sequence[int]) -> CacheProbe:
    """Three times the same prompt. The first answer has to be the first of its kind since the refit."""
    first, again = (engine.first_token(model, prompt) for _ in range(2))
    reference = engine.first_token(model, prompt, cached=False)
    return CacheProbe(
        prompt_tokens=first.usage.prompt_tokens,
        first=_cache_answer(first),
        again=_cache_answer(again),
        reference=_cache_answer(reference),
    )


def _cache_answer(answer: CompletionAnswer) -> CacheAnswer:
    return CacheAnswer(cached_tokens=answer.cached_tokens, logprob=answer.first_logprob)


def held_by(engine: EngineAdmin) -> tuple[tuple[HeldParameter, ...], ...]:
    """What each rank holds, with the digest that the engine itself gives of a tensor where it has one to give."""
    ranks, own = engine.contents(), engine.checksums()
    return tuple(as_held(rank, own) for rank in ranks)


def as_held(rank: RankContents, own: Mapping[str, str]) -> tuple[HeldParameter, ...]:
    """What a rank told, as an event has it; `own` are the engine's own digests by the rank's prefix and name."""
    return tuple(
        HeldParameter(
            name=told.name,
            how=told.how,
            dtype=told.dtype,
            shape=None if told.shape is None else tuple(told.shape),
            sha256=own.get(rank.prefix + told.name) if told.how == "held" else told.sha256,
            cut=None if told.cut is None else Cut(**told.cut.model_dump()),
        )
        for told in rank.parameters
    )


def teacher_forced(prompt: Sequence[int], answer: Generated, where: str) -> tuple[float, ...]:
    """Log-probability of each prompt token but the first, given those before it; `len(prompt) - 1` numbers."""
    entries = answer.prompt_logprobs or []
    if len(entries) != len(prompt):
        raise ObservationError(
            "a probe's prompt log-probabilities are incomplete",
            expected=f"{len(prompt)} entries",
            found=str(len(entries)),
            where=where,
        )
    found: list[float] = []
    for token, entry in zip(prompt[1:], entries[1:], strict=True):
        if entry is None or str(token) not in entry:
            raise ObservationError(
                "a probe's prompt log-probabilities lack a token of the prompt",
                expected=f"an entry for token {token}",
                found="none" if entry is None else ", ".join(sorted(entry)),
                where=where,
            )
        found.append(entry[str(token)].logprob)
    return tuple(found)


def slices_of(engines: Sequence[EngineObservation]) -> list[dict[str, object]]:
    """The slices of parameters that ranks have, each once: what the trainer has to tell the digests of."""
    found = {
        (parameter.name, parameter.cut): None
        for engine in engines
        for rank in engine.ranks
        for parameter in rank
        if parameter.cut is not None
    }
    return [{"name": name, "cut": cut.model_dump()} for name, cut in found if cut is not None]
