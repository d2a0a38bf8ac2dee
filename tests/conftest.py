"""What all unit tests share: signals as a terminal gives them, and no parent to end with."""

from __future__ import annotations

import os
import signal

# A shell starts a background job with SIGINT ignored, and every child would inherit that. The tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# It names nox, which started these tests; the parent of what they start are the tests.
os.environ.pop("SMOKESTACK_DIE_WITH_PARENT", None)
