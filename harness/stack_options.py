"""The options that several commands share: which stack, with which engines and refit, and the folder of the run."""

from __future__ import annotations

import argparse

from harness import gpu_options
from harness.config import Deadlines
from harness.engines import MAX_ENGINES, MAX_TENSOR_PARALLEL
from harness.option_values import engine_ranks, named_port, named_value, positive_float, up_to
from harness.refits import REFITS
from harness.request import callers_path


def add_stack_options(parser: argparse.ArgumentParser, *, run_dir: bool = True) -> None:
    parser.add_argument("--stack", default="cpu", help="a folder of stacks/")
    gpu_options.add_platform(parser)
    parser.add_argument(
        "--model", default="tiny", help="tiny, smollm2, a name on the hub that is in its local cache, or a local folder"
    )
    _add_refit(parser)
    if run_dir:
        add_run_dir(parser)
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        type=named_port,
        metavar="NAME=PORT",
        help="a fixed port instead of a free one, for example engine-0=8002; may be repeated",
    )
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="the variable with the API key: the engine asks for it, every admin and rollout call carries it",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=named_value,
        metavar="NAME=VALUE",
        help="a header of every admin and rollout call, no secret; may be repeated",
    )
    parser.add_argument(
        "--header-from-env",
        action="append",
        default=[],
        type=named_value,
        metavar="NAME=VARIABLE",
        help="the same with the value of a variable; may be repeated",
    )
    parser.add_argument(
        "--ready-timeout", type=positive_float, default=Deadlines().engine_s, help="seconds for the engine to start"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="only the outcome")


def add_engines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engines",
        type=up_to(MAX_ENGINES),
        default=argparse.SUPPRESS,
        help="engines, each with a sidecar; default: 1",
    )
    parser.add_argument(
        "--tensor-parallel",
        type=up_to(MAX_TENSOR_PARALLEL),
        default=argparse.SUPPRESS,
        help="ranks of each engine; default: 1",
    )
    parser.add_argument(
        "--engine",
        action="append",
        default=[],
        type=engine_ranks,
        metavar="tp=RANKS",
        help="one engine of so many ranks, in place of the two options above; once for each engine",
    )


def _add_refit(parser: argparse.ArgumentParser) -> None:
    kinds = "; ".join(f"{kind}: {refit.does}" for kind, refit in REFITS.items())
    parser.add_argument(
        "--refit",
        choices=list(REFITS),
        default=argparse.SUPPRESS,
        help=f"how weights reach the engines (default: the stack's own way). {kinds}",
    )


def add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=callers_path, default=argparse.SUPPRESS, help="folder of the run (default: runs/…)"
    )
