"""`selftest`: every sabotage in a real run of its own, and a table of what each of them turned red.

A row that is not as declared makes the exit status 1, and the others are run all the same. An interrupt ends the whole;
the runs' folders remain.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

from harness.config import RefitKind
from harness.errors import Interrupted, SmokestackError
from harness.parallel import Lost, side_by_side
from harness.report.stream import print_document, say
from harness.report.verdict import EXIT_CHECK_FAILED, EXIT_PASS, Outcome
from harness.request import Request
from harness.run import run_once
from harness.sabotage.declaration import OVER_A_GROUP, Sabotage
from harness.sabotage.judgement import Row, judge
from harness.sabotage.registry import SABOTAGES, named

STEPS = 2
"""Optimizer steps of each run: the least in which one version follows another that was trained."""

SIDE_BY_SIDE = 2
"""Runs at a time by default. A stack that starts keeps one core busy: its processes import one after another."""

REFIT_S = 20.0
"""Granted to a refit and to the rendezvous: some sabotages are noticed at this limit only."""

INTERRUPTED = Interrupted.exit_code


def selftest(args: argparse.Namespace) -> int:
    """Run those that were asked for, all by default. Returns the exit status."""
    asked = [one for one in map(named, args.sabotage) if one is not None] or list(SABOTAGES)
    request = Request.from_args(args)
    deadlines = request.deadlines.model_copy(update={"refit_s": REFIT_S, "rendezvous_s": REFIT_S})
    # A fixed port is one run's at a time.
    at_a_time = 1 if request.ports else args.side_by_side
    rows = run_all(asked, replace(request, steps=STEPS, quiet=True, deadlines=deadlines), run_once, at_a_time)
    if args.json:
        print_document(document(rows))
    if len(rows) < len(asked):
        return INTERRUPTED
    return EXIT_PASS if all(row.caught for row in rows) else EXIT_CHECK_FAILED


def run_all(
    asked: Sequence[Sabotage], request: Request, run: Callable[[Request], Outcome], at_a_time: int = 1
) -> list[Row]:
    """One run each, told as it ends, whatever became of the others; fewer rows than asked for when interrupted."""
    width = max(len(one.name) for one in asked)
    began = time.monotonic()
    rows: list[Row] = []
    with closing(side_by_side(asked, lambda one: _run(one, request, run), at_a_time)) as ended:
        for sabotage, told in ended:
            row = _unaccounted(sabotage, told) if isinstance(told, Lost) else told
            if row is not None:
                rows.append(row)
                tell(row, width)
    if len(rows) < len(asked):
        say(f"selftest: interrupted, {len(asked) - len(rows)} of {len(asked)} not run to their end")
    caught = sum(row.caught for row in rows)
    say(f"{caught} of {len(asked)} sabotages caught as declared, {time.monotonic() - began:.0f} s")
    return rows


def _run(sabotage: Sabotage, request: Request, run: Callable[[Request], Outcome]) -> Row | None:
    """The row of one run; None when the user does not want any more. What could not be begun is not as declared."""
    try:
        engines, refit = (1,) * sabotage.engines, _refit(sabotage, request)
        outcome = run(replace(request, sabotage=sabotage.name, tensor_parallel=engines, refit=refit))
    except Interrupted:
        return None
    except SmokestackError as error:
        return Row(sabotage, (), error.kind, 0.0, (f"could not be run: {error.what}",), None)
    return None if outcome.exit_code == INTERRUPTED else judge(sabotage, outcome)


def _refit(sabotage: Sabotage, request: Request) -> RefitKind | None:
    """The kind that was asked for; the fault's own where there is no such fault in that one."""
    if (request.refit or OVER_A_GROUP[0]) in sabotage.refits:
        return request.refit
    return cast(RefitKind, sabotage.refits[0])


def _unaccounted(sabotage: Sabotage, lost: Lost) -> Row:
    return Row(sabotage, (), None, 0.0, (f"its process ended without an account: {lost}",), None)


def tell(row: Row, width: int) -> None:
    """A line of the table; below it what was not as declared."""
    what = [*row.red, *([] if row.ended_in is None else [f"ended in {row.ended_in}"])]
    word = "CAUGHT" if row.caught else "WRONG "
    say(f"{word}  {row.sabotage.name:<{width}}  {row.seconds:5.1f} s  {', '.join(what) or 'nothing'}")
    for problem in row.problems:
        say(f"{'':<{len(word) + 2}}{problem}")
    if row.problems and row.run_dir is not None:
        say(f"{'':<{len(word) + 2}}see {row.run_dir}")


def document(rows: Sequence[Row]) -> dict[str, object]:
    """The table as one JSON document."""
    return {
        "schema": 1,
        "rows": [
            {
                "sabotage": row.sabotage.name,
                "declared": list(row.sabotage.fails),
                "red": list(row.red),
                "ended_in": row.ended_in,
                "seconds": row.seconds,
                "caught": row.caught,
                "problems": list(row.problems),
            }
            for row in rows
        ],
    }
