"""Runs nox as `python -m nox` does, but ends with the status of the first command that failed, where nox says 1.

`noxw` starts it with the bootstrap environment's Python; it imports nothing of the project. The noxfile, which runs in
the same process, leaves the status in this process's environment.
"""

from __future__ import annotations

import os
import sys

STATUS = "SMOKESTACK_STATUS"
NOX_FAILED = 1


def run() -> None:
    """Become nox. Raises SystemExit in any case."""
    from nox.__main__ import main  # type: ignore[import-not-found]

    os.environ.pop(STATUS, None)
    try:
        main()
    except SystemExit as ended:
        told = os.environ.get(STATUS)
        sys.exit(int(told) if told is not None and ended.code == NOX_FAILED else ended.code)


if __name__ == "__main__":
    run()
