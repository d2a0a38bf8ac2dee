"""What tests of the doctor itself share: a check that looks at whatever a test wants, and the schema of the answers."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable

from scripts.doctor.registry import PURPOSES, Check, Finding, Result, ok
from scripts.doctor.subject import Subject
from scripts.layout import PROJECT_ROOT

SCHEMA = json.loads((PROJECT_ROOT / "docs" / "doctor.schema.json").read_text(encoding="utf-8"))


def check(look: Callable[[Subject], Finding], name: str = "host.toy", needed_for: tuple[str, ...] = PURPOSES) -> Check:
    return Check(
        id=name,
        title="toy",
        group=name.partition(".")[0],
        why="because",
        symptom="it breaks",
        cause="something",
        looks_at="a toy",
        reference="https://example.org/toy",
        needed_for=needed_for,
        look=look,
        fix="mend the-toy",
    )


def results_of(*findings: Finding) -> list[Result]:
    return [Result(check(lambda _: ok("1", "1"), f"host.toy{n}"), finding) for n, finding in enumerate(findings)]


def ends(pid: int) -> bool:
    """Whether a process has ended, or is just doing so."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 5.0)[0])
    finally:
        os.close(descriptor)
