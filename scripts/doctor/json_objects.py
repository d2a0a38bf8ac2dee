"""JSON that others wrote, as far as it can be read."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: str | None) -> dict[str, Any] | None:
    """An object of JSON; None for no text, and for text that is none."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
