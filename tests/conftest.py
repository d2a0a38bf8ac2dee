"""What all unit tests share: signals as a terminal gives them."""

from __future__ import annotations

import signal

# A shell starts a background job with SIGINT ignored, and every child would inherit that. The tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
