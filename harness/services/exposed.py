"""A fault, not a service: a process of the run that listens where the whole network could reach it, and serves nothing.

Launched beside the others (`Stack.launch`), it has to turn `stack.loopback-only` red, and nothing else. It opens a
session of its own below its service's, as a program would that does not want to be found, and accepts no connection.
"""

from __future__ import annotations

import sys

from harness.services.context import ServiceContext
from harness.services.spec import ServiceSpec

EXPOSED = "exposed"

_PROGRAM = """
import os, socket, sys, time
if os.fork():
    time.sleep(float(sys.argv[1]))
else:
    os.setsid()
    listener = socket.socket()
    listener.bind(("0.0.0.0", 0))
    listener.listen()
    print("listening on %s:%d" % listener.getsockname(), flush=True)
    time.sleep(float(sys.argv[1]))
"""
_LIFE_S = 3600


def spec(context: ServiceContext) -> ServiceSpec:
    """It ends by itself after an hour, should nobody end it."""
    return ServiceSpec(
        name=EXPOSED,
        argv=(sys.executable, "-I", "-S", "-c", _PROGRAM, str(_LIFE_S)),
        env=context.environment({}),
        cwd=context.config.tmp_dir,
        log=context.log(EXPOSED),
        stop_grace_s=context.config.deadlines.stop_grace_s,
    )
