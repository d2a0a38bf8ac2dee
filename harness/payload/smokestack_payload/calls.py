"""How this process talks HTTP: what each call carries, how much of an answer is read, and how it is shown.

Used by the admin client and the rollouts. Straight to the address (no proxy, no redirect, no compression undone); a
body is bounded in bytes, and its text is cleaned before anybody shows it. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_BODY_BYTES = 8 * 1024 * 1024
TEXT_SHOWN = 2000
"""Characters of a server's answer that an error carries."""

CLIENT_OPTIONS: Mapping[str, Any] = {"trust_env": False, "follow_redirects": False}
STRAIGHT: Mapping[str, str] = {"Accept-Encoding": "identity"}
REFUSED = (401, 403)
CONCEALED = "[concealed]"
SHORTEST_SECRET = 8
"""Characters. A shorter value may be any word, and is left in texts."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True)
class Carried:
    """The headers of every call, and for people where each came from. Values are never shown."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)

    def all(self) -> dict[str, str]:
        return {**STRAIGHT, **self.headers}

    def shown(self, body: bytes | str, limit: int = TEXT_SHOWN) -> str:
        """A server's text on one line, without escapes and control characters, and without what it was sent."""
        text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, CONCEALED)
        visible = "".join(ch if ch.isprintable() else " " for ch in _ESCAPES.sub("", text))
        return " ".join(visible.split())[:limit]

    def refusal(self, status: int) -> str:
        """What a server that answers `status` did not accept; nothing for other statuses."""
        if status not in REFUSED:
            return ""
        if not self.headers:
            return " (no API key was sent: --api-key-env NAME sends one)"
        told = ", ".join(f"{name}: {self.sources.get(name, 'of the plan')}" for name in self.headers)
        return f" (not accepted: {told})"

    def _secrets(self) -> set[str]:
        values = {value for name, value in self.headers.items() if self.sources.get(name) != "--header"}
        values |= {value.removeprefix("Bearer ") for value in values}
        return {value for value in values if len(value) >= SHORTEST_SECRET}


def says_error(answer: Any) -> bool:
    """Whether an answer that came with a success status says of itself that the request failed."""
    if not isinstance(answer, Mapping):
        return False
    status = answer.get("status")
    if isinstance(status, str):
        failed = status in ("error", "failed", "failure")
    else:
        failed = isinstance(status, int) and not isinstance(status, bool) and status >= 400
    return bool(answer.get("error")) or answer.get("success") is False or failed
