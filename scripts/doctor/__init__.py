"""The doctor: what this machine lacks for a stack, each with the command that mends it.

It only looks: it writes nothing, asks nobody on the network, shows no secret, and ends within ten seconds,
whatever hangs. Standard library only, in the modules of the build plane that it uses as well, so that
`python3 -m scripts.doctor` works in a fresh checkout. Written for Python 3.9, so that an old one can be told so; the
first lines run on anything.
"""

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - this is what says so
    sys.stderr.write(
        "doctor: python3 is %d.%d, which is too old to look any further\n"  # noqa: UP031
        "  expected: python3 3.11 or newer\n"
        "  fix:      sudo apt-get install python3 python3-venv   # or: uv python install 3.11\n" % sys.version_info[:2]
    )
    raise SystemExit(10)

from scripts.doctor.examination import examine, failures, require
from scripts.doctor.subject import Options

__all__ = ["Options", "examine", "failures", "require"]
