"""`python3 -m scripts.doctor`: options in, the findings on stdout, one exit status out.

0 when nothing failed, 10 when something did, 2 for a wrong option.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.doctor import facts, report
from scripts.doctor.checks import CHECKS
from scripts.doctor.examination import examine, failures
from scripts.doctor.registry import PURPOSES, Check
from scripts.doctor.subject import Options

ROOT = Path(__file__).resolve().parent.parent.parent
SOMETHING_FAILED = 10
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The options, with their defaults in `--help`."""
    made = argparse.ArgumentParser(
        prog="python3 -m scripts.doctor",
        description="What this machine lacks for a stack, each with the command that mends it. It only looks.",
        epilog="exit status: 0 nothing failed, 10 something did, 2 usage",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--stack", default="cpu", metavar="NAME", help="a folder of stacks/")
    made.add_argument("--for", dest="purpose", choices=PURPOSES, help="only what is needed for that; all when left out")
    made.add_argument("--check", action="append", default=[], metavar="ID", help="only this check; may be repeated")
    made.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    made.add_argument("--jobs", type=int, metavar="N", help="parallel jobs of a build, instead of those computed")
    named: dict[str, Any] = {"action": "append", "default": [], "type": _named}
    made.add_argument("--source", metavar="NAME=PATH", help="a checkout given to the build", **named)
    made.add_argument("--port", metavar="NAME=N", help="a port asked for", **named)
    made.add_argument("--recipe", action="append", metavar="NAME", help="build only this; may be repeated")
    made.add_argument("--gpus", type=int, metavar="N", help="GPUs that the run takes; two when left out")
    made.add_argument("--model", type=Path, metavar="FOLDER", help="the model's folder, where the run gets one")
    made.add_argument("--trainer", type=Path, metavar="FOLDER", help="the trainer's environment, if it has its own")
    return made


def main(argv: Sequence[str]) -> int:
    """Examine this machine and say what was found."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = parser()
    chosen = made.parse_args(argv)
    if chosen.stack not in facts.stack_names(ROOT):
        made.error(f"there is no stack named {chosen.stack!r}; there are: {', '.join(facts.stack_names(ROOT))}")
    checks = _selected(made, chosen.check)
    try:
        results = examine(ROOT, chosen.stack, chosen.purpose, _options(made, chosen), checks=checks)
    except KeyboardInterrupt:
        return INTERRUPTED
    if chosen.json:
        _say(report.document(results))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        _say(report.table(results, chosen.stack, chosen.purpose, time.monotonic() - began, colour=colour))
    return SOMETHING_FAILED if failures(results) else 0


def _selected(made: argparse.ArgumentParser, only: Sequence[str]) -> tuple[Check, ...]:
    unknown = sorted(set(only) - {check.id for check in CHECKS})
    if unknown:
        made.error(f"there is no check named {', '.join(unknown)}; docs/troubleshooting.md lists them")
    return tuple(check for check in CHECKS if not only or check.id in only)


def _options(made: argparse.ArgumentParser, chosen: argparse.Namespace) -> Options:
    ports = dict(chosen.port)
    wrong = {name: value for name, value in ports.items() if not value.isdecimal() or not 0 < int(value) < 65536}
    if wrong:
        made.error(f"--port needs a number from 1 to 65535: {', '.join(f'{k}={v}' for k, v in wrong.items())}")
    if chosen.jobs is not None and chosen.jobs < 1:
        made.error(f"--jobs needs a number from 1 on: {chosen.jobs}")
    if chosen.gpus is not None and chosen.gpus < 2:
        made.error(f"--gpus needs a number from 2 on: {chosen.gpus}")
    return Options(
        ports={name: int(value) for name, value in ports.items()},
        jobs=chosen.jobs,
        sources={name: Path(value) for name, value in chosen.source},
        recipes=None if chosen.recipe is None else tuple(chosen.recipe),
        model=chosen.model,
        gpus=chosen.gpus,
        trainer=chosen.trainer,
    )


def _named(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _say(text: str) -> None:
    print(text)  # noqa: T201 - the answer itself
