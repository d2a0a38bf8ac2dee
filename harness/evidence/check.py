"""A check's outcome, and the notebook that it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from harness.config import MismatchBudget, RunConfig
from harness.plaintext import plain
from harness.services.context import engine_name

Status = Literal["pass", "fail", "skip"]

SHOWN = 3
"""How many findings of one kind a check spells out before it only counts them."""


Plain = Annotated[str, AfterValidator(plain)]
"""What is judged may come from a peer that sends escape sequences; what is said of it does not."""

TOLERANCE = 1e-3
"""Largest difference of two log-probabilities (natural logarithm) that still counts as equal; both sides in float32.

It has to lie well above the rounding of the same weights through two implementations, and well below what one optimizer
step moves; docs/adr/0006-content-evidence.md has the measurements. Every run reports its own, as the `found` of
`policy.weights-match` (largest difference) and of `policy.weights-changed` (smallest change).
"""

TOLERANCES = {"float32": TOLERANCE, "bfloat16": 0.5}
"""By what both sides compute in. That of bfloat16 is declared and not measured: docs/adr/0027-two-gpus.md."""

NOT_OBSERVED = "what was not observed counts as failed"


class Check(BaseModel):
    """One judged statement about the run, as it stands in `verdict.json`.

    `why` says what a pass proves, what a failure means, or why the check was not judged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    status: Status
    expected: Plain
    found: Plain
    why: Plain


@dataclass(frozen=True)
class ExpectedEngine:
    """An engine that the run was to have: its service's name, its address, and how many ranks it was given."""

    name: str
    admin_url: str
    ranks: int


@dataclass(frozen=True)
class Expectation:
    """What the run was configured to do, apart from all that it reports of itself.

    `rollouts` is how many each step asks for. `fleet` has every engine, in the order of their names. `starts_untrained`
    is true when the engines first serve other weights than the trainer's version 0, so that transfer 0 must show.
    `host` is the address where this run was told to listen. `own_trainer`: it is a command of the caller's, which
    tells nothing.
    Without `sidecars` the engines stand alone, as in a control run. Without `engine_labels` only an engine's workers
    name a version: neither its outputs nor its sidecar can. Without `counts_cached_tokens` its answers do not say what
    came from its prefix cache. `lora`: engines are to take an adapter. `gpus` are those that the run was given;
    `tolerance` is how far engine and trainer may be apart in a log-probability.
    """

    steps: int
    rollouts: int
    fleet: tuple[ExpectedEngine, ...]
    model: str
    host: str
    starts_untrained: bool
    keep_up: bool
    mismatch: MismatchBudget
    own_trainer: bool = False
    sidecars: bool = True
    engine_labels: bool = True
    counts_cached_tokens: bool = True
    lora: bool = False
    gpus: tuple[str, ...] = ()
    tolerance: float = TOLERANCE

    @classmethod
    def of(cls, config: RunConfig) -> Expectation:
        return cls(
            steps=config.steps,
            rollouts=config.grpo.prompts_per_step * config.grpo.group_size,
            fleet=tuple(
                ExpectedEngine(engine_name(index), f"http://{config.host}:{config.ports[engine_name(index)]}", ranks)
                for index, ranks in enumerate(config.tensor_parallel)
            ),
            model=config.served_model_name,
            host=config.host,
            starts_untrained=config.starts_untrained,
            keep_up=config.keep_up,
            mismatch=config.mismatch or budget_of(config),
            own_trainer=config.trainer is not None,
            sidecars=config.serving == "dynamo",
            engine_labels=config.engine_labels,
            counts_cached_tokens=config.counts_cached_tokens,
            lora=config.lora,
            gpus=config.gpus if config.platform == "cuda" else (),
            tolerance=TOLERANCES[config.precision],
        )

    @property
    def engines(self) -> int:
        return len(self.fleet)

    @property
    def world_size(self) -> int:
        """Ranks of all engines together, without the trainer."""
        return sum(engine.ranks for engine in self.fleet)

    def named(self, admin_url: str) -> str:
        """The engine's name, for messages; its address where it is none of the run's."""
        return next((engine.name for engine in self.fleet if engine.admin_url == admin_url), admin_url)

    def at(self, admin_url: str) -> str:
        """` at engine-1` where there are several, nothing where there is one: the end of a place's name."""
        return "" if self.engines == 1 else f" at {self.named(admin_url)}"

    @property
    def versions(self) -> range:
        """Policy versions of the whole run: one before the first step, then one for each step."""
        return range(self.steps + 1)


def budget_of(config: RunConfig) -> MismatchBudget:
    """The budget where none was asked for: as wide as what both sides compute in needs it."""
    return MismatchBudget.of(TOLERANCES[config.precision])


@dataclass
class Findings:
    """What one check came across.

    `wrong` is evidence against the statement, `missing` is evidence that should be there and is not. Kept apart,
    because a run that ended early may lack evidence (unless it is `always_due`) but must never hide a contradiction.
    `not_asked` is the reason why this run does not have to prove the statement at all.
    """

    expected: str
    proves: str
    means: str
    seen: str = ""
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    not_asked: str | None = None
    always_due: bool = False

    def judge(self, check_id: str, ended_in: str | None) -> Check:
        """The outcome; `ended_in` is the kind of failure that ended the run early, None when it went to its end."""
        if self.wrong:
            status, found, why = "fail", listing(self.wrong), self.means
        elif self.not_asked is not None:
            status, found, why = "skip", self.seen or "not looked for", self.not_asked
        elif self.missing and ended_in is not None and not self.always_due:
            status, found, why = "skip", listing(self.missing), f"the run ended in {ended_in}: not reached"
        elif self.missing:
            status, found, why = "fail", f"no evidence: {listing(self.missing)}", NOT_OBSERVED
        else:
            status, found, why = "pass", self.seen, self.proves
        return Check.model_validate(
            {"id": check_id, "status": status, "expected": self.expected, "found": found, "why": why}
        )


def listing(items: list[str]) -> str:
    """The first few of `items`, and how many more there are."""
    more = len(items) - SHOWN
    return "; ".join(items[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 engine`, `2 engines`; `plural` for nouns that do not just take an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def span(versions: range) -> str:
    """`0..4`, or `0` when there is only one."""
    return f"{versions[0]}..{versions[-1]}" if len(versions) > 1 else str(versions[0])
