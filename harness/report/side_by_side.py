"""A comparison for people: for each step two lines, the run's and its control's, then what a request takes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from harness.evidence.check import counted
from harness.report.comparison import Control, StepNumbers
from harness.report.tables import ABSENT

RUN = "dynamo"


def comparison_table(control: Control) -> Table:
    """Fits 80 columns. The refit of a step is the one after it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("version", "run", "reward", "loss", "k3", "tokens", "rollout", "refit", "same"):
        table.add_column(column, justify="left" if column == "run" else "right", no_wrap=True)
    refits = {pair.version: pair for pair in control.refits}
    taken = {pair.step: pair for pair in control.steps}
    for version in sorted({*refits, *taken}):
        step, refit = taken.get(version), refits.get(version)
        same = ABSENT if step is None else f"{step.same_rollouts}/{step.rollouts}"
        ours = (None if step is None else step.run, None if refit is None else refit.run_s)
        theirs = (None if step is None else step.control, None if refit is None else refit.control_s)
        table.add_row(str(version), RUN, *_cells(*ours), same)
        table.add_row("", control.kind, *_cells(*theirs), "")
    return table


def _cells(numbers: StepNumbers | None, refit_s: float | None) -> list[str]:
    refit = _shown(refit_s, ".2f", " s")
    if numbers is None:
        return [*[ABSENT] * 5, refit]
    return [
        _shown(numbers.reward, ".3f"),
        _shown(numbers.loss, ".4f"),
        _shown(numbers.mismatch_k3, ".1e"),
        str(numbers.tokens),
        _shown(numbers.rollout_s, ".2f", " s"),
        refit,
    ]


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return ABSENT if value is None else f"{value:{form}}{unit}"


def request_lines(control: Control) -> Iterator[str]:
    """What Dynamo costs a request, as far as both runs came to measuring it."""
    told = control.requests
    if told.ratio_to_control is not None:
        yield (
            f"one token, one request at a time: {_ms(told.frontend_s)} through the frontend,"
            f" {_ms(told.same_engine_s)} from its engine, {_ms(told.control_engine_s)} from the control's"
        )
        yield (
            f"  Dynamo takes {_times(told.ratio_to_same_engine)} its own engine, asked in turns,"
            f" and {told.ratio_to_control:.2f} times the control's (medians of {told.count})"
        )
    if told.ratio_in_rollouts is not None:
        yield (
            f"rollouts, side by side: {_ms(told.rollout_s)} and {_ms(told.control_rollout_s)} a request,"
            f" {told.ratio_in_rollouts:.2f} times (medians of {told.rollout_count})"
        )


def ending_line(control: Control) -> tuple[str, str]:
    """The control's word, and the facts after it."""
    facts = [f"the control, {control.kind}"]
    if control.failed:
        facts.append(f"{counted(len(control.failed), 'check')} failed: {', '.join(control.failed)}")
    if control.failure is not None:
        facts.append(control.failure)
    first = next(iter(control.steps), None)
    if first is not None:
        facts.append(
            f"{first.same_rollouts} of {counted(first.rollouts, 'rollout')} of step {first.step} have the same tokens"
        )
    return control.verdict, ", ".join(facts)


def _ms(seconds: float | None) -> str:
    return ABSENT if seconds is None else f"{1000 * seconds:.1f} ms"


def _times(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"{ratio:.2f} times"
