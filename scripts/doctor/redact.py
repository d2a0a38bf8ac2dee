"""What may be shown of a machine: no credentials in addresses, and the home folder as `~`.

Applied once, to everything that a check says, so that no check can forget it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from scripts.doctor.registry import Finding

HIDDEN = "***"
# Up to the last @ before the path; or, with a slash in the password, from `user:` on where no port number stands.
_USER_IN_ADDRESS = re.compile(r"(?<=://)(?:[^/\s'\"]+|[^/@:\s'\"]*:(?!\d+/)[^@\s'\"]+)(?=@)")
_SECRET_IN_QUERY = re.compile(r"(?i)([?&][^=&\s]*(?:token|key|secret|pass|pwd|auth|credential|sig)[^=&\s]*=)[^&\s'\"]+")
_ADDRESS_WITHOUT_SCHEME = re.compile(r"(?<![\w/])[^\s/@:'\"=]+:[^\s/'\"]+(?=@[\w.-]+)")


def redacted(finding: Finding, home: str) -> Finding:
    """The finding as it may be shown."""
    return replace(
        finding,
        found=text(finding.found, home),
        required=text(finding.required, home),
        fix=command(finding.fix, home),
    )


def text(value: str, home: str) -> str:
    """A line for people."""
    return _at_home(_without_credentials(value), home, "~")


def command(value: str, home: str) -> str:
    """A command that still works when it is typed: no shell reads `~` inside quotes."""
    hidden = _without_credentials(value)
    if _is_home(home):
        ending = re.escape(home.rstrip("/")) + r"(?=[/'\"])"
        hidden = re.sub(f"'{ending}", '"$HOME"\'', hidden)
        hidden = re.sub(f'"{ending}', '"$HOME', hidden)
    return _at_home(hidden, home, "~")


def _without_credentials(value: str) -> str:
    hidden = _USER_IN_ADDRESS.sub(HIDDEN, value)
    hidden = _SECRET_IN_QUERY.sub(rf"\1{HIDDEN}", hidden)
    return _ADDRESS_WITHOUT_SCHEME.sub(HIDDEN, hidden)


def _at_home(value: str, home: str, shown: str) -> str:
    if not _is_home(home):
        return value
    return re.sub(rf"(?<![\w.~-]){re.escape(home.rstrip('/'))}(?![\w.-])", shown, value)


def _is_home(home: str) -> bool:
    """A home of `/` hides nothing."""
    return home.startswith("/") and home.strip("/") != ""
