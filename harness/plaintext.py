"""Text of other programs, made safe to show: on a terminal, in JUnit, in the verdict.

Whoever answers may send escape sequences, control characters and marks that reorder what is read. Imports nothing of
the project.
"""

from __future__ import annotations

import re

SHOWN_CHARACTERS = 500

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters but tab and newline, marks that reorder a line, surrogates, and what XML has no place for.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def plain(text: str) -> str:
    """`text` without terminal escapes, control characters and reordering marks; lines and tabs stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def printable(body: bytes | str, limit: int = SHOWN_CHARACTERS) -> str:
    """A server's text for a message: decoded leniently, on one line, cut to `limit` characters."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body
    visible = "".join(ch if ch.isprintable() else " " for ch in _ESCAPES.sub("", text))
    clean = " ".join(visible.split())
    return clean if len(clean) <= limit else f"{clean[:limit]}… ({len(clean)} characters)"
