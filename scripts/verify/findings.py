"""What `verify` found: plain data, and how it is shown. Imports nothing of the project but the errors' texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal[
    "altered",  # other bytes, another mode or another target than what was written
    "missing",
    "extra",
    "inputs",  # whole, but made from something else than what is there now
    "unjudged",  # what it would be compared with is itself altered or missing
    "wheel",  # the archive, its tags, its RECORD
    "contents",  # what lies in an artifact, or does not
    "platform",  # what the machine code in an artifact asks of a machine
    "allowance",  # a written allowance that nothing needs
]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one file. `file` is relative to the project; `wheel: member` inside a wheel."""

    kind: Kind
    file: str
    problem: str
    expected: str | None = None
    found: str | None = None


@dataclass
class Report:
    """The outcome. `notes` are facts that nobody has to act on; `fixes` are commands, by what they mend."""

    stack: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    fixes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        """The `--json` answer."""
        return {
            "stack": self.stack,
            "findings": [asdict(finding) for finding in self.findings],
            "notes": self.notes,
            "checked": self.checked,
            "fixes": self.fixes,
        }

    def lines(self) -> list[str]:
        """The same for people: every file that is wrong, then what to do."""
        shown = list(_table(self.findings))
        shown += [f"note: {note}" for note in self.notes]
        shown += [f"fix: {line}" for fix in self.fixes for line in fix.splitlines()]
        checked = ", ".join(f"{count} {what}" for what, count in self.checked.items())
        files = len({finding.file for finding in self.findings})
        outcome = "as recorded" if self.ok else f"{files} file{'s' if files != 1 else ''} not as recorded"
        return [*shown, f"verify {self.stack}: {outcome} ({checked}; {self.seconds:.1f} s)"]


def _table(findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        # A name may hold line breaks, or bytes that are no text.
        name = finding.file if finding.file.isprintable() else ascii(finding.file)
        yield f"{finding.kind.upper():<9} {name}"
        yield f"          {finding.problem}"
        for label, value in (("expected", finding.expected), ("found", finding.found)):
            if value is not None:
                yield f"          {label + ':':<10}{value}"
