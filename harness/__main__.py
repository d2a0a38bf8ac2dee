"""`python -m harness`. Signals are heard before anything is imported that takes its time."""

import sys

from harness.signals import InterruptSignals

if __name__ == "__main__":
    InterruptSignals().install()
    from harness.cli import main
    from harness.report.stream import lasting

    sys.stderr = lasting(sys.stderr)
    sys.exit(main())
