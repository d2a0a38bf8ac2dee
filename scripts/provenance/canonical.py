"""The one spelling of our JSON documents: sorted, indented, UTF-8, one newline at the end."""

from __future__ import annotations

import json


def encode(value: object) -> bytes:
    """Plain data as a document's bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()
