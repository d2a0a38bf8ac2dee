"""What an engine's Prometheus metrics say: one number of the many. Pure; the text comes from a server."""

from __future__ import annotations

import math
import re

FINISHED = "vllm:request_success_total"
"""Requests that the engine has finished, by model and by the reason of their end. Not there before the first one."""

_KNOWN_BY = "vllm:"
_SAMPLE = re.compile(rf"^{FINISHED}(?:\{{[^}}]*\}})?\s+(\S+)", re.ASCII | re.MULTILINE)


def finished_requests(text: str) -> int | None:
    """Requests finished since the engine's start; None for what is not an engine's metrics."""
    try:
        counts = [float(value) for value in _SAMPLE.findall(text)]
    except ValueError:
        return None
    if not counts:
        return 0 if re.search(rf"^{_KNOWN_BY}", text, re.MULTILINE) else None
    total = math.fsum(counts) if all(math.isfinite(count) and count >= 0 for count in counts) else math.nan
    return int(total) if total == total // 1 and total < 2**53 else None
