"""`--control plain-vllm`: the same training once more against the engine alone, and both side by side.

The control is a whole run of its own, in the folder `control` of the first one's, with its own checks and its own
teardown. Same seed, model, prompts and steps; the trainer's rollouts go to the engine, and nothing of Dynamo runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.config import ControlKind
from harness.errors import Interrupted, SmokestackError
from harness.report import junit
from harness.report.comparison import Control, refits, requests, steps
from harness.report.stream import say
from harness.report.verdict import EXIT_PASS, Outcome, VerdictWord, unjudged
from harness.request import Request
from harness.rundir import write_json, write_text

FOLDER = "control"
_FROM_BEST: tuple[VerdictWord, ...] = ("pass", "fail", "error")


def with_control(kind: ControlKind, request: Request, first: Outcome, run: Callable[[Request], Outcome]) -> Outcome:
    """The first run's outcome, no better than that of both, with the comparison in it; written to its folder.

    A first run that ended early is compared with nothing. One whose checks failed is: the control then tells whether
    the engine alone does better. Raises DoctorError when the outcome cannot be written.
    """
    if first.failure is not None:
        say(f"no control: the run that it belongs to ended early, in {first.failure.kind}")
        return first
    second = _second(replace(request, control=None, serving=kind, run_dir=first.run_dir / FOLDER), run)
    control = compare(kind, first, second)
    word = max(first.verdict.verdict, second.verdict.verdict, key=_FROM_BEST.index)
    interrupted = second.exit_code == Interrupted.exit_code
    status = second.exit_code if interrupted or first.exit_code == EXIT_PASS else first.exit_code
    verdict = first.verdict.model_copy(update={"verdict": word, "control": control})
    outcome = replace(first, verdict=verdict, exit_code=status)
    write_json(first.run_dir / "verdict.json", verdict.document())
    write_text(first.run_dir / "junit.xml", junit.render(outcome, request.credentials.conceal).decode())
    return outcome


def compare(kind: ControlKind, first: Outcome, second: Outcome) -> Control:
    """How the control ended, and both runs' numbers."""
    return Control(
        kind=kind,
        verdict=second.verdict.verdict,
        exit_code=second.exit_code,
        run_dir=FOLDER,
        failed=tuple(check.id for check in second.verdict.failed()),
        failure=None if second.failure is None else f"{second.failure.kind}: {second.failure.what}",
        not_judged=second.verdict.not_judged,
        steps=steps(first.run, second.run),
        refits=refits(first.run, second.run),
        requests=requests(first.run, second.run),
    )


def _second(request: Request, run: Callable[[Request], Outcome]) -> Outcome:
    """A control that could not even be begun is one that did not pass."""
    try:
        return run(request)
    except SmokestackError as error:
        say(f"{error.kind}: {error}")
        model, run_dir = request.model.name, request.run_dir
        assert run_dir is not None, "the control's folder is in the first run's"
        return unjudged(error, stack=request.stack, model=model, steps=request.steps, run_dir=run_dir)
