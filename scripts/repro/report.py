"""What `repro` found: a table for people, a document for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.repro.comparison import FileResult

_DIGITS = 16


@dataclass(frozen=True)
class Report:
    """`unpinned` are inputs that no pin holds, `builds` the conditions and durations of each build in turn."""

    stack: str
    files: Sequence[FileResult]
    unpinned: Sequence[str]
    builds: Sequence[Mapping[str, Any]]
    explanations: Mapping[str, Sequence[str]]

    @property
    def ok(self) -> bool:
        """Whether every file came out the same in both folders."""
        return bool(self.files) and all(result.equal for result in self.files)

    def document(self) -> dict[str, Any]:
        return {
            "stack": self.stack,
            "files": [
                {
                    "file": result.file,
                    "level": result.level.value,
                    "sha256": list(result.sha256),
                    "differences": list(self.explanations.get(result.file, ())),
                }
                for result in self.files
            ],
            "unpinned": list(self.unpinned),
            "builds": [dict(build) for build in self.builds],
        }

    def lines(self) -> list[str]:
        width = max((len(result.file) for result in self.files), default=0)
        lines = []
        for result in self.files:
            digest = f"  sha256 {(result.sha256[0] or '')[:_DIGITS]}" if result.equal else ""
            lines.append(f"{result.file:<{width}}  {result.level.value}{digest}")
            lines += [f"    {line}" for line in self.explanations.get(result.file, ())]
        lines += [f"not pinned: {each}" for each in self.unpinned]
        equal = sum(result.equal for result in self.files)
        seconds = " and ".join(f"{build['seconds']:g}" for build in self.builds)
        return [
            *lines,
            "",
            f"{equal} of {len(self.files)} files are the same in different folders ({seconds} s)",
            f"varied: {_varied(self.builds[:2])}",
        ]


def _varied(builds: Sequence[Mapping[str, Any]]) -> str:
    """What was different: each condition with both values."""
    names = [name for name in builds[0] if name != "seconds" and len({build[name] for build in builds}) > 1]
    pairs = [f"{name.replace('_', ' ')} {' and '.join(str(build[name]) for build in builds)}" for name in names]
    return ", ".join([*pairs, "HOME, TMPDIR"])
