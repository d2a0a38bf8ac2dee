"""Command line of the run plane: options in, one exit status out.

`python -m harness {smoke,selftest,up,status,logs,down}`. Data goes to stdout, everything for people to stderr.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import gpu_options, keep, takedown
from harness.config import DEFAULT_STEPS, Deadlines, GrpoConfig, MismatchBudget
from harness.errors import SmokestackError
from harness.logs import logs
from harness.option_values import positive_float, positive_int, steps
from harness.report.stream import print_document, say
from harness.report.verdict import failure_document, unjudged
from harness.request import Request
from harness.run import smoke
from harness.sabotage import SABOTAGES
from harness.sabotage.selftest import SIDE_BY_SIDE, selftest
from harness.session import InternalError, require_uninterrupted
from harness.signals import InterruptSignals
from harness.stack_options import add_engines, add_run_dir, add_stack_options

_SABOTAGE_NAMES = tuple(one.name for one in SABOTAGES)

EPILOG = """exit status: 0 pass, 1 a check failed, 2 usage, 10 doctor, 20 build or install, 30 not ready, 31 discovery,
40 refit or training, 50 teardown left something, 70 a fault of this program, 130 interrupted. With --json, stdout has
exactly one JSON document even when nothing could be begun: `smoke` gives its verdict in any case, the other commands
{"schema": 1, "verdict": "error", "failure": {...}}; only what is no command line at all gets a usage text on stderr."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` and run the command. Returns the exit status of the outcome contract.

    A command that raises has written nothing to stdout yet.
    """
    args = build_parser().parse_args(argv)
    with InterruptSignals() as signals:
        try:
            require_uninterrupted(signals)
            status: int = args.command(args)
        except SmokestackError as error:
            say(f"{error.kind}: {error}")
            if getattr(args, "json", False):
                print_document(_document(args, error))
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours has a status of its own, too
            say(f"{''.join(traceback.format_exception(error))}internal: {type(error).__name__}: {error}")
            fault = InternalError(f"internal error: {type(error).__name__}: {error}", hint="please report it")
            if getattr(args, "json", False):
                print_document(_document(args, fault))
            return fault.exit_code
    return status


def _document(args: argparse.Namespace, error: SmokestackError) -> dict[str, Any]:
    """What `--json` tells of a command that ended before it had anything to tell."""
    if args.name != "smoke":
        return failure_document(error)
    outcome = unjudged(error, stack=args.stack, model=args.model, steps=args.steps, run_dir=Path())
    return outcome.verdict.document()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness",
        description="Start a real RL serving stack, refit it from a real trainer, prove what it serves, tear it down.",
        epilog=EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="name")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=text, description=text, epilog=EPILOG, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )

    _add_smoke(add("smoke", "run, prove, judge and clean up"))
    _add_selftest(add("selftest", "one run for each sabotage: each must be caught, and by its own checks alone"))
    _add_up(add("up", "start the stack and leave it running"))
    _add_status(add("status", "show the stacks that are up: processes, addresses, logs"))
    _add_down(add("down", "take down what `up` or `--keep-up` left running"))
    _add_logs(add("logs", "print the logs of the newest run"))
    return parser


def _add_smoke(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=lambda args: smoke(Request.from_args(args)))
    add_stack_options(parser)
    add_engines(parser)
    grpo = GrpoConfig()
    parser.add_argument("--steps", type=steps, default=DEFAULT_STEPS, help="optimizer steps, each with a refit")
    parser.add_argument("--seed", type=int, default=grpo.seed, help="seed of prompts and sampling")
    parser.add_argument("--learning-rate", type=positive_float, default=argparse.SUPPRESS, help="default: the model's")
    parser.add_argument(
        "--mismatch-budget",
        type=positive_float,
        default=argparse.SUPPRESS,
        help="largest log-probability difference of engine and trainer on rollouts; its mean and the KL go with it"
        f" (default: {MismatchBudget().max_abs:g}, and as much wider as bfloat16 needs it)",
    )
    parser.add_argument(
        "--sabotage", choices=_SABOTAGE_NAMES, default=None, help="one fault on purpose, to see it caught"
    )
    parser.add_argument(
        "--trainer",
        metavar="'CMD …'",
        default=None,
        help="your own trainer in the place of ours: a command, run without a shell, that gets the stack's addresses "
        "in SMOKESTACK_… variables (docs/trainer.md) and is judged by what the stack shows",
    )
    parser.add_argument(
        "--trainer-timeout",
        type=positive_float,
        default=Deadlines().command_s,
        help="seconds for the command of --trainer",
    )
    gpu_options.add_nccl(parser)
    parser.add_argument(
        "--control",
        choices=["plain-vllm"],
        default=None,
        help="a second run against the engine alone, without Dynamo, with the same seed, model, prompts and steps; "
        "both must pass, and are compared",
    )
    parser.add_argument(
        "--lora",
        action="store_true",
        help="after the last refit each engine loads a LoRA adapter, answers with it and unloads it, by the routes "
        "that its worker advertises; without such routes that check is skipped",
    )
    parser.add_argument("--keep-up", action="store_true", help="leave the stack running afterwards")
    parser.add_argument("--dry-run", action="store_true", help="print every command and its environment; start nothing")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON document on stdout")
    defaults = Deadlines()
    parser.add_argument(
        "--step-timeout",
        type=positive_float,
        default=argparse.SUPPRESS,
        help=f"seconds for the rollouts of one step, and again for its training (default: {defaults.step_s:g})",
    )
    parser.add_argument(
        "--refit-timeout",
        type=positive_float,
        default=argparse.SUPPRESS,
        help="seconds for one refit, a checkpoint's writing included, and at most for the rendezvous before the first"
        f" (default: {defaults.refit_s:g})",
    )


def _add_selftest(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=selftest)
    add_stack_options(parser, run_dir=False)
    parser.add_argument(
        "--sabotage", action="append", choices=_SABOTAGE_NAMES, default=[], help="only this one; may be repeated"
    )
    parser.add_argument(
        "--side-by-side", type=positive_int, default=SIDE_BY_SIDE, help="runs at a time; one with a fixed --port"
    )
    parser.add_argument("--json", action="store_true", help="the table as one JSON document on stdout")
    parser.set_defaults(dry_run=False)


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=lambda args: keep.up(Request.from_args(args)))
    add_stack_options(parser)
    add_engines(parser)
    parser.add_argument("--dry-run", action="store_true", help="print every command and its environment; start nothing")
    parser.add_argument("--json", action="store_true", help="addresses and pids as one JSON document on stdout")


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=takedown.status)
    add_run_dir(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def _add_down(parser: argparse.ArgumentParser) -> None:
    _add_status(parser)
    parser.set_defaults(command=takedown.down)
    parser.add_argument("--all-runs", action="store_true", help="every stack of this project that is still up")


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=logs)
    parser.add_argument("service", nargs="?", help="one service, for example engine-0; all of them without it")
    parser.add_argument("-f", "--follow", action="store_true", help="go on printing what is appended")
    parser.add_argument("-n", "--lines", type=positive_int, default=40, help="how many last lines of each")
    add_run_dir(parser)
