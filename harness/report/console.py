"""What the user sees, on standard error: the run as it happens, then its summary.

On a terminal a live last line shows the phase, its time and what is awaited; elsewhere (no terminal, NO_COLOR, a dumb
terminal) the same lines come plain, each with the time since the run's start. Reads events, decides nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness import events
from harness.evidence.check import counted
from harness.report.comparison import Control
from harness.report.failure import check_body, check_headline, failure_body, failure_headline, shown
from harness.report.narration import narrate
from harness.report.progress import Progress
from harness.report.side_by_side import comparison_table, ending_line, request_lines
from harness.report.stream import lasting
from harness.report.tables import STYLES, checks_table, training_table
from harness.report.verdict import Outcome

BAD_NEWS = (events.Failure, events.ServiceExited)


def wants_plain(stream: TextIO) -> bool:
    """Whether `stream` should get plain lines: it is no terminal, or the user's environment asks for it."""
    return not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in {"dumb", "", None}


class Console:
    """Follows a run. Give `on_event` every event; call `summary` once, at the end.

    A stream that breaks (`| head`, a terminal that was closed) ends the view, never the run.
    `quiet` shows the summary only. `clock` counts seconds on any scale; for `conceal` see `failure_body`. Use it as a
    context manager, or call `close`, so that the terminal is restored however the run ends.
    """

    def __init__(
        self,
        stream: TextIO | None,
        plain: bool | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        conceal: Callable[[str], str] = lambda text: text,
    ) -> None:
        lasting_stream = lasting(stream)
        self.plain = wants_plain(lasting_stream) if plain is None else plain
        self._quiet = quiet
        self._conceal = conceal
        self._rich = RichConsole(
            file=lasting_stream,
            force_terminal=not self.plain,
            no_color=self.plain,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )
        self._progress = Progress(clock)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on_event(self, fields: Mapping[str, Any]) -> None:
        """Show one event, as a dict in the form of `events.jsonl`."""
        if self._quiet:
            return
        try:
            event = events.parse_fields(fields)
        except events.EventError as error:
            self._say(f"unreadable event {fields.get('kind')!r}: {error}", fields.get("t"), "red")
            return
        self._progress.follow(event)
        if self._progress.phase is None:
            self.close()
        text = narrate(event)
        if text is not None:
            self._say(text, event.t, _style(event))
        if self._progress.phase is not None and not self.plain:
            self._open()

    def note(self, text: str) -> None:
        """A remark outside the event stream."""
        if not self._quiet:
            self._say(text, None, "")

    def warn(self, text: str) -> None:
        """A remark that a quiet run makes too."""
        self._say(text, None, "yellow")

    def summary(self, outcome: Outcome) -> None:
        """Training, checks, what went wrong, and the verdict with the path of its evidence."""
        self.close()
        table = None if self._quiet else training_table(outcome.run)
        for part in (table, None if self._quiet else checks_table(outcome.verdict.checks)):
            if part is not None:
                self._rich.print()
                self._print_table(part)
        for check in outcome.verdict.failed():
            self._block(check_headline(check), check_body(check))
        if outcome.failure is not None:
            body = failure_body(outcome.failure, outcome.run_dir, self._conceal)
            self._block(failure_headline(outcome.failure), body)
        self._verdict(outcome)

    def comparison(self, control: Control) -> None:
        """A run and its control side by side, after the summaries of both."""
        if not self._quiet:
            self._rich.print()
            self._print_table(comparison_table(control))
            self._rich.print()
            for line in request_lines(control):
                self._rich.print(line, soft_wrap=True)
        word, facts = ending_line(control)
        self._rich.print()
        self._rich.print(Text.assemble((word.upper(), f"bold {STYLES[word]}"), f"  {facts}"), soft_wrap=True)

    def close(self) -> None:
        """Take the live line away. Idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _verdict(self, outcome: Outcome) -> None:
        verdict = outcome.verdict
        word = verdict.verdict.upper()
        versions = " ".join(map(str, verdict.policy_versions)) or "none"
        self._rich.print()
        fault = [f"SABOTAGED on purpose ({verdict.sabotage})"] if verdict.sabotage else []
        facts = [
            *fault,
            *_bad_ending(outcome),
            *_unjudged(outcome),
            f"policy versions {versions}",
            f"{verdict.phases.total:.1f} s",
        ]
        self._rich.print(
            Text.assemble((word, f"bold {STYLES[verdict.verdict]}"), f"  {', '.join(facts)}"), soft_wrap=True
        )
        indent = " " * (len(word) + 2)
        phases = verdict.phases.model_dump(include={"install", "ready", "train", "teardown"})
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items() if seconds is not None)
        if times:
            self._rich.print(f"{indent}{times}", soft_wrap=True)
        self._rich.print(f"{indent}evidence in {shown(outcome.run_dir)}", soft_wrap=True)

    def _block(self, headline: str, body: str) -> None:
        self._rich.print()
        self._rich.print(Text(headline, style="bold red"), soft_wrap=True)
        if body:
            self._rich.print(body, soft_wrap=True)

    def _print_table(self, table: Table) -> None:
        """Without the blanks that fill the last column: plain output goes to files and mails."""
        if not self.plain:
            self._rich.print(table)
            return
        with self._rich.capture() as captured:
            self._rich.print(table)
        for line in captured.get().splitlines():
            self._rich.print(line.rstrip(), soft_wrap=True)

    def _say(self, text: str, t: float | None, style: str) -> None:
        stamp = " " * 10 if t is None else f"[{t:6.1f}s] " if self.plain else f"{t:6.1f}s   "
        self._rich.print(Text.assemble((stamp, "dim"), (text, style)), soft_wrap=True)

    def _open(self) -> None:
        """Put the live line below everything else. Idempotent."""
        if self._live is None:
            self._live = Live(
                self._progress,
                console=self._rich,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()


def _unjudged(outcome: Outcome) -> list[str]:
    """What a verdict by observation alone does not cover."""
    verdict = outcome.verdict
    if verdict.trainer is None:
        return []
    return ["by observation alone", f"{counted(len(verdict.not_judged), 'check')} not judged"]


def _bad_ending(outcome: Outcome) -> list[str]:
    """What the verdict's line says of a run that did not pass."""
    if outcome.verdict.verdict == "pass":
        return []
    failed = len(outcome.verdict.failed())
    what = (
        f"{failed} of {counted(len(outcome.verdict.checks), 'check')}"
        if outcome.failure is None
        else outcome.failure.kind
    )
    return [what, f"exit status {outcome.exit_code}"]


def _style(event: events.BaseEvent) -> str:
    if isinstance(event, BAD_NEWS):
        return "bold red"
    return "bold" if isinstance(event, events.Phase | events.RunStarted) else ""
