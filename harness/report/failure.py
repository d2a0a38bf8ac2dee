"""How a failure reads: one text for the terminal and for JUnit.

A headline, then what was expected and found, the last lines of the right log with its path, and what to do. The
layout does not depend on the terminal, so that the text is the same wherever it is read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from harness import events
from harness.errors import LOG_TAIL_LINES, log_tail
from harness.evidence import Check
from harness.plaintext import plain

WIDTH = 79
LABEL_WIDTH = 10


def check_headline(check: Check) -> str:
    return f"FAIL {check.id}"


def check_body(check: Check) -> str:
    """Expected, found and why of one check, indented."""
    return "\n".join(
        [*_labelled("expected", check.expected), *_labelled("found", check.found), *_labelled("why", check.why)]
    )


def failure_headline(failure: events.RunFailure) -> str:
    return f"ERROR {failure.kind}: {plain(failure.what)}"


def failure_body(failure: events.RunFailure, run_dir: Path, conceal: Callable[[str], str]) -> str:
    """Expected, found, where, log tail and fix of a run that ended early, indented.

    `conceal` takes out of the log what must not be shown; the failure itself was recorded without it.
    """
    lines: list[str] = []
    for label, value in (("expected", failure.expected), ("found", failure.found), ("where", failure.where)):
        if value is not None:
            lines += _labelled(label, value)
    if failure.log is not None:
        lines += _log_lines(run_dir / failure.log, conceal)
    if failure.hint is not None:
        lines += _labelled("fix", failure.hint, wrap=False)
    return "\n".join(lines)


def shown(path: Path) -> str:
    """`path` as a reader would type it: relative to the working directory when it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _labelled(label: str, value: str, *, wrap: bool = True) -> list[str]:
    """One field; a hint is not wrapped, since it may be a command to copy."""
    first, following = f"  {label:<{LABEL_WIDTH}}", " " * (LABEL_WIDTH + 2)
    paragraphs = plain(value).splitlines() or [""]
    if not wrap:
        return [(following if index else first) + text for index, text in enumerate(paragraphs)]
    lines: list[str] = []
    for text in paragraphs:
        lines += textwrap.wrap(
            text,
            WIDTH,
            initial_indent=following if lines else first,
            subsequent_indent=following,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines or [first.rstrip()]


def _log_lines(path: Path, conceal: Callable[[str], str]) -> list[str]:
    try:
        tail = [plain(conceal(line)).rstrip() for line in log_tail(path)]
    except OSError as error:
        return _labelled("log", f"{shown(path)} (cannot be read: {error.strerror})", wrap=False)
    if not tail:
        return _labelled("log", f"{shown(path)} (nothing in it)", wrap=False)
    size = "all of it" if len(tail) < LOG_TAIL_LINES else f"last {LOG_TAIL_LINES} lines"
    return [*_labelled("log", f"{shown(path)} ({size})", wrap=False), *(f"    | {line}".rstrip() for line in tail)]
