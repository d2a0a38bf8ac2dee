"""What all unit tests share: signals as a terminal gives them, and no parent to end with."""

from __future__ import annotations

import os
import signal

# A shell starts a background job with SIGINT ignored, nohup one with SIGHUP, and every child would inherit that. The
# tests send both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# It names nox, which started these tests; the parent of what they start are the tests.
os.environ.pop("SMOKESTACK_DIE_WITH_PARENT", None)
