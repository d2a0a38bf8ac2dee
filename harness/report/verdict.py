"""The verdict: the events and checks of one run as the document of the outcome contract, and its exit status.

Writes nothing itself; `Verdict.document()` is what goes to `verdict.json` and, with `--json`, to standard output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness import events
from harness.config import RunConfig
from harness.errors import SmokestackError, TeardownError
from harness.evidence import Check, Expectation, Timeline, agreed_versions, judge, unjudged_checks
from harness.evidence.command import versions_seen
from harness.plaintext import plain
from harness.report.comparison import Control

VerdictWord = Literal["pass", "fail", "error"]

EXIT_PASS = 0
EXIT_CHECK_FAILED = 1
TEARDOWN_CHECKS = {"teardown.clean", "teardown.gpu-memory"}


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Phases(_Closed):
    """Seconds by phase; None for a phase that did not end. `refit` holds pause to resume of each version in order."""

    install: float | None
    ready: float | None
    train: float | None
    refit: tuple[float | None, ...]
    teardown: float | None
    total: float


class SurvivorRecord(_Closed):
    """A process of the run that outlived its teardown."""

    pid: int
    service: str
    cmd: str


class FailureRecord(_Closed):
    """What ended the run early, in the words of its error. `log` is relative to the run folder when it lies in it."""

    kind: str
    what: str
    expected: str | None
    found: str | None
    where: str | None
    hint: str | None
    log: str | None


class Verdict(_Closed):
    """`verdict.json`, schema 1.

    `policy_versions` are the versions that were observed: every engine and every sidecar named exactly this number.
    `sabotage` names the fault that the run had on purpose. `trainer` is the command of the caller's that trained, and
    `not_judged` has the checks that need a trainer of ours. `control` is the run that this one was compared with; a
    verdict is then no better than that of both. Without such a thing, the document has no such field.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verdict: VerdictWord
    stack: str
    model: str
    steps: int
    policy_versions: tuple[int, ...]
    checks: tuple[Check, ...]
    phases: Phases
    survivors: tuple[SurvivorRecord, ...]
    failure: FailureRecord | None
    sabotage: str | None = None
    trainer: str | None = None
    not_judged: tuple[str, ...] = ()
    control: Control | None = None

    def document(self) -> dict[str, Any]:
        """As JSON values, with the names of the contract; the last ones only where the run was of that kind."""
        unused = {name for name in ("sabotage", "trainer", "not_judged", "control") if not getattr(self, name)}
        return self.model_dump(mode="json", by_alias=True, exclude=unused)

    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.status == "fail"]


@dataclass(frozen=True)
class Outcome:
    """A judged run: what is written, and what the reports are made of."""

    verdict: Verdict
    exit_code: int
    run: Timeline
    run_dir: Path

    @property
    def failure(self) -> events.RunFailure | None:
        return self.run.failure


def judge_run(recorded: Iterable[Mapping[str, Any]], config: RunConfig) -> Outcome:
    """Judge the events of `events.jsonl` against the run's configuration."""
    run = Timeline.read(recorded)
    want = Expectation.of(config)
    checks = judge(run, want)
    verdict = Verdict(
        verdict=_word(run.failure, checks),
        stack=config.stack,
        model=config.model,
        steps=config.steps,
        policy_versions=tuple(versions_seen(run, want) if want.own_trainer else agreed_versions(run, want)),
        checks=tuple(checks),
        phases=_phases(run),
        survivors=tuple(
            SurvivorRecord(pid=item.pid, service=item.service, cmd=item.cmd)
            for teardown in run.of(events.Teardown)[-1:]
            for item in teardown.survivors
        ),
        failure=None if run.failure is None else failure_record(run.failure, config.run_dir),
        sabotage=config.sabotage,
        trainer=None if config.trainer is None else config.trainer.text,
        not_judged=tuple(unjudged_checks(want)),
    )
    return Outcome(verdict, exit_code(run.failure, checks), run, config.run_dir)


def unjudged(error: SmokestackError, *, stack: str, model: str, steps: int, run_dir: Path) -> Outcome:
    """The outcome where there is nothing to judge: no run was begun, or what it recorded cannot be judged."""
    failed = events.Failure.of(error)
    verdict = Verdict(
        verdict="error",
        stack=stack,
        model=model,
        steps=steps,
        policy_versions=(),
        checks=(),
        phases=Phases(install=None, ready=None, train=None, refit=(), teardown=None, total=0.0),
        survivors=(),
        failure=failure_record(failed.error, run_dir),
    )
    return Outcome(verdict, error.exit_code, Timeline((failed,), ()), run_dir)


def failure_document(error: SmokestackError) -> dict[str, Any]:
    """What a command other than `smoke` tells with `--json` when it fails: what a verdict would have of it."""
    failure = failure_record(events.Failure.of(error).error, Path())
    return {"schema": 1, "verdict": "error", "failure": failure.model_dump(mode="json")}


def exit_code(failure: events.RunFailure | None, checks: Sequence[Check]) -> int:
    """The exit status of the contract.

    What ended the run decides. Otherwise 50 means that the teardown is all that went wrong; a red check about the
    policy or the stack says more than what was left behind, so that both together are 1.
    """
    if failure is not None:
        return failure.exit_code
    red = [check.id for check in checks if check.status == "fail"]
    if red and TEARDOWN_CHECKS.issuperset(red):
        return TeardownError.exit_code
    return EXIT_CHECK_FAILED if red else EXIT_PASS


def _word(failure: events.RunFailure | None, checks: Sequence[Check]) -> VerdictWord:
    if failure is not None:
        return "error"
    return "fail" if any(check.status == "fail" for check in checks) else "pass"


def _phases(run: Timeline) -> Phases:
    ended = {phase.phase: phase.seconds for phase in run.of(events.Phase)}
    return Phases(
        install=_seconds(ended.get("install")),
        ready=_seconds(ended.get("ready")),
        train=_seconds(ended.get("train")),
        refit=tuple(_seconds(refit.seconds.total) for refit in run.of(events.Refit)),
        teardown=_seconds(ended.get("teardown")),
        total=_seconds(max((event.t for event in run.entries), default=0.0)) or 0.0,
    )


def _seconds(value: float | None) -> float | None:
    """Rounded to milliseconds; what is not a number of seconds is None, since JSON has no word for it."""
    return round(value, 3) if value is not None and math.isfinite(value) else None


def failure_record(failure: events.RunFailure, run_dir: Path) -> FailureRecord:
    """`failure` as `verdict.json` has it."""
    log = failure.log
    if log is not None and Path(log).is_relative_to(run_dir):
        log = str(Path(log).relative_to(run_dir))
    told = {name: getattr(failure, name) for name in ("expected", "found", "where", "hint")}
    texts = {name: None if text is None else plain(text) for name, text in told.items()}
    return FailureRecord(kind=failure.kind, what=plain(failure.what), log=log, **texts)
