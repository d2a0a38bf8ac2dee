"""`--dry-run`: every command of a run with its environment, and nothing started, built or written."""

from __future__ import annotations

from harness.request import Request


def show(request: Request) -> None:
    """Print it to standard output."""
    raise NotImplementedError(request)
