"""What a check is and what it finds. Every check of the doctor is one `Check`; `checks.CHECKS` lists them all.

The documentation is made from these objects, so what the doctor looks at and what is written about it cannot differ.

Like all of this package: standard library only, and importable by Python 3.9, so that an old one can be named as such.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scripts.doctor.subject import Subject

STATUSES = ("ok", "warn", "fail", "skip")
GROUPS = {
    "host": "Host",
    "build": "Build tools",
    "gpu": "GPU",
    "runtime": "Runtime",
}
PURPOSES = ("build", "install", "run")
_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Finding:
    """What a check saw. `fix` is a command that can be typed as it is; a `#` and a remark may follow it."""

    status: str
    found: str
    required: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is none of {', '.join(STATUSES)}")
        if not self.found or not self.required:
            raise ValueError("a finding says what was found and what is required")
        if (self.status in {"warn", "fail"}) != bool(self.fix):
            raise ValueError("warn and fail come with a fix, ok and skip without one")


def ok(found: str, required: str) -> Finding:
    """All is well."""
    return Finding("ok", found, required)


def warn(found: str, required: str, fix: str) -> Finding:
    """It works, but slower, or with a risk that the person should know. Never stops anything."""
    return Finding("warn", found, required, fix)


def fail(found: str, required: str, fix: str) -> Finding:
    """What the stack needs is not there: it would not build, install or run."""
    return Finding("fail", found, required, fix)


def skip(reason: str, required: str = "nothing here") -> Finding:
    """Not looked at, because it does not matter for this stack or cannot be seen now; `reason` says which."""
    return Finding("skip", reason, required)


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong with a machine, how to see it, and what to say about it.

    `symptom` is what a person sees when it is wrong, `cause` the reason behind it, `why` one line on why it matters,
    `looks_at` what `look` reads, `fix` the usual remedy as a command (a finding has the one for the machine at hand;
    words in capitals are to be filled in). `needed_for` are the purposes that it can stop. `rows` are the numbers of
    the reported failures (`reports`) that it finds early. `look` may raise: the examination makes a finding of it.
    """

    id: str
    title: str
    group: str
    why: str
    symptom: str
    cause: str
    looks_at: str
    reference: str
    needed_for: tuple[str, ...]
    look: Callable[[Subject], Finding]
    rows: tuple[int, ...] = ()
    fix: str = ""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id) or self.group not in GROUPS or not self.id.startswith(f"{self.group}."):
            raise ValueError(f"check {self.id!r} is not named GROUP.NAME with its group {self.group!r}")
        if not self.needed_for or not set(self.needed_for) <= set(PURPOSES):
            raise ValueError(f"check {self.id}: needed_for {self.needed_for} names none of {', '.join(PURPOSES)}")
        if not self.reference.startswith("https://"):
            raise ValueError(f"check {self.id}: the reference is no public address")
        for name in ("title", "why", "symptom", "cause", "looks_at"):
            if not getattr(self, name):
                raise ValueError(f"check {self.id} has no {name}")


@dataclass(frozen=True)
class Result:
    """A check and what it found."""

    check: Check
    finding: Finding
