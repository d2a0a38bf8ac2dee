"""`python -m scripts VERB`: options in, one answer and one exit status out.

Progress goes to stderr. With `--json` stdout carries exactly one JSON document, also when something failed.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from scripts import commands, options
from scripts.console import Console
from scripts.errors import DISK_FULL, BuildError, BuildPlaneError
from scripts.indexes import PipSilentError
from scripts.verbs import answer

INTERRUPTED = 130
DIE_WITH_PARENT = "SMOKESTACK_DIE_WITH_PARENT"
"""The pid of the process that starts this one and wants it to end with itself; 1 for whoever the parent is now."""


def main(argv: Sequence[str]) -> int:
    """Run one verb. The status is that of the outcome contract (see `errors`), 130 when told to stop."""
    console = Console(sys.stderr)
    as_json = "--json" in argv
    try:
        commands.stop_on_signals()
        _obey_parent(os.environ.get(DIE_WITH_PARENT, ""))
        given = answer(options.parser().parse_args(argv), console)
    except BuildPlaneError as error:
        return _failed(error, console, as_json=as_json)
    except OSError as error:
        return _failed(_as_build_error(error), console, as_json=as_json)
    except KeyboardInterrupt:
        console.say("interrupted: what was half done will be done again")
        if as_json:
            _print({"ok": False, "error": {"kind": "interrupted", "what": "interrupted by a signal"}})
        return INTERRUPTED
    if as_json:
        _print({"ok": given.status == 0, **given.document, "seconds": round(console.elapsed_s(), 2)})
    else:
        for line in given.lines:
            print(line)  # noqa: T201 - the answer itself
    return given.status


def _obey_parent(wanted: str) -> None:
    if wanted.isdecimal() and int(wanted) > 0:
        commands.die_with_parent(None if int(wanted) == 1 else int(wanted))


def _failed(error: BuildPlaneError, console: Console, *, as_json: bool) -> int:
    console.say(f"error: {error}")
    if as_json:
        _print({"ok": False, "error": error.as_json()})
    return error.exit_code


def _as_build_error(error: OSError) -> BuildError:
    if isinstance(error, PipSilentError):
        return BuildError(str(error), hint="python -m pip config list   # it asks nothing but this machine's files")
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return BuildError(
        f"the operating system refused: {error.strerror or error}",
        where=None if error.filename is None else str(error.filename),
        hint=DISK_FULL if full else None,
    )


def _print(document: dict[str, Any]) -> None:
    print(json.dumps(document))  # noqa: T201 - the answer itself
