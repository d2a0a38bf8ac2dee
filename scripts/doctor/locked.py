"""What a lock file pins, read as plainly as the doctor needs it: `requirements_file` reads it strictly for a build."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scripts.doctor.subject import Subject

REQUIREMENTS = "requirements.lock"
BUILD = "build.lock"
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s\\;]+)", re.MULTILINE)


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(subject: Subject, name: str) -> Mapping[str, str] | None:
    """Normalised distribution -> version of a lock of the stack; None where there is no such file."""
    text = subject.machine.read_text(subject.root / "stacks" / subject.stack.name / name)
    if text is None:
        return None
    return {normalised(found.group(1)): found.group(2) for found in _PIN.finditer(text)}


def brought(subject: Subject, tool: str) -> str | None:
    """The version of a tool that the build's own locked environment brings; None where the machine has to have it."""
    return (versions(subject, BUILD) or {}).get(tool)
