"""Faults of a trainer that is not ours: commands in its place, each with one thing wrong (`--trainer`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from harness.command import OwnTrainer
from harness.program import Program
from harness.run import SmokeRun
from harness.services.context import engine_name
from harness.session import Session

_ORDER = """
import json, sys, urllib.request
def order(path, **body):
    for engine in sys.argv[1:]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(engine + path, json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=30).close()
"""

_LABEL = "order('/update_weight_version', new_version='1')\n"
_MOVE = "order('/collective_rpc', method='smokestack_destroy')\n"
"""Other weights than before, by the shortest way: all of them zero."""

_PAUSE = "order('/pause?mode=abort')\n"

COMMANDS: Mapping[str, str] = {
    "failing-command": "import sys; print('it fails on purpose'); sys.exit(3)",
    "labelling-command": _ORDER + _LABEL,
    "unlabelled-command": _ORDER + _MOVE,
    "pausing-command": _ORDER + _MOVE + _LABEL + _PAUSE,
}
"""What each does, in Python; its arguments are the engines."""


def commanded(session: Session) -> SmokeRun:
    """The session's run with the command of its sabotage for a trainer."""
    code = COMMANDS[session.config.sabotage or ""]
    config = session.config
    engines = [f"http://{config.host}:{config.ports[engine_name(index)]}" for index in range(config.engines)]
    program = Program(argv=(sys.executable, "-I", "-S", "-c", code, *engines), cwd=session.run_dir.path)
    session.use(trainer=program)
    return SmokeRun(session, trainer=lambda own: OwnTrainer(own, program))
