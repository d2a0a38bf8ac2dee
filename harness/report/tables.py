"""The two tables of a run's summary. They fit 80 columns and read the same without colour."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from harness import events
from harness.evidence import Check, Timeline
from harness.plaintext import plain

STYLES = {"pass": "green", "fail": "bold red", "skip": "yellow", "error": "bold red"}
ABSENT = "-"


def training_table(run: Timeline) -> Table | None:
    """One row for each version that was refitted or trained; None when there was none.

    `k3` estimates the divergence between the sampling engine and the trainer; `rollout`, `train` and `refit` (pause to
    resume) are in seconds.
    """
    refits = {refit.version: refit for refit in run.of(events.Refit)}
    steps = {step.step: step for step in run.of(events.Step)}
    if not refits and not steps:
        return None
    table = _table("version", "reward", "loss", "grad norm", "k3", "tokens", "rollout", "train", "refit")
    for version in sorted({*refits, *steps}):
        table.add_row(*_row(version, steps.get(version), refits.get(version)))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _row(version: int, step: events.Step | None, refit: events.Refit | None) -> list[str]:
    refitted = ABSENT if refit is None else _number(refit.seconds.total, ".2f", " s")
    if step is None:
        return [str(version), *[ABSENT] * 7, refitted]
    return [
        str(version),
        _number(step.rewards.mean, ".3f"),
        _number(step.loss, ".4f"),
        _number(step.grad_norm, ".3f"),
        _number(step.mismatch.k3, ".1e"),
        str(step.tokens),
        _number(step.seconds.rollout, ".2f", " s"),
        _number(step.seconds.train, ".2f", " s"),
        refitted,
    ]


def _number(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else str(value)


def checks_table(checks: tuple[Check, ...]) -> Table:
    """One row for each check: what was found, or why it was not judged."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        said = check.why if check.status == "skip" else check.found
        table.add_row(Text(check.status.upper(), style=STYLES[check.status]), check.id, Text(plain(said)))
    return table
