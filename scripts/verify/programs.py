"""What `check-wheel-contents` and `auditwheel show` say of our wheels: programs of the tool environment.

Their complaints are findings, unless the stack's `verify.toml` allows them with a reason.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from scripts import commands
from scripts.environ import child_environment
from scripts.errors import BuildError, DoctorError
from scripts.verify import portability
from scripts.verify.allowances import Allowance
from scripts.verify.findings import Finding

_COMPLAINT = re.compile(r"(?P<wheel>\S.*\.whl): (?P<check>W\d{3}): (?P<text>.*?):?")
_FLAGS = ("unsupported_isa", "pyfpe", "ucs2")


class Complaint(NamedTuple):
    """What a checker does not like; `of` is the first file, or the library, that it names."""

    artifact: str
    check: str
    text: str
    of: str = ""


def check_contents(wheels: Mapping[str, Path]) -> list[Complaint]:
    """`check-wheel-contents` of all wheels at once (artifact's name -> file)."""
    if not wheels:
        return []
    output = _ask("check-wheel-contents", ["--no-config", *map(str, wheels.values())], (0, 1))
    names = {str(path): artifact for artifact, path in wheels.items()}
    found: list[Complaint] = []
    for line in output.splitlines():
        match = _COMPLAINT.fullmatch(line)
        if match is not None:
            found.append(Complaint(names[match["wheel"]], f"check-wheel-contents.{match['check']}", match["text"]))
        elif line.startswith("  ") and found and not found[-1].of:
            found[-1] = found[-1]._replace(of=line.strip())
        elif not line.startswith("  ") and not line.endswith(": OK"):
            raise BuildError("check-wheel-contents said something unknown", found=line)
    return found


def show_platform(
    artifact: str, wheel: Path, platforms: Sequence[str]
) -> tuple[list[Complaint], dict[str, str | None]]:
    """`auditwheel show` of a wheel with machine code: complaints, and library from outside -> its place, if found."""
    told: dict[str, Any] = json.loads(_ask("auditwheel", ["show", "--json", str(wheel)], (0,)))
    complaints = [
        Complaint(artifact, f"auditwheel.{flag.replace('_', '-')}", "what no platform tag allows")
        for flag in _FLAGS
        if told[flag]
    ]
    for platform in platforms:
        if portability.covers(platform, told["overall_tag"]):
            continue
        libraries = told["policy_upgrades"].get(platform, {}).get("libs_to_eliminate", [])
        text = f"the name says {platform}, the wheel is consistent with {told['overall_tag']}"
        complaints += [
            Complaint(artifact, "auditwheel.library", f"{text} because of a library from outside, {library}", library)
            for library in libraries
        ]
        if not libraries:
            complaints.append(Complaint(artifact, "auditwheel.platform-tag", text))
    return complaints, told["external_libs"]


def judge(
    complaints: Sequence[Complaint], allowed: Sequence[Allowance], labels: Mapping[str, str], file: str
) -> Iterator[Finding]:
    """Complaints that nothing allows, and allowances without a complaint, which stand in `file`.

    `labels`: artifact -> its path.
    """
    left: dict[tuple[str, str, str], list[Complaint]] = {}
    for complaint in complaints:
        if not any(_is_for(allowance, pattern, complaint) for allowance in allowed for pattern in allowance.of):
            left.setdefault(complaint[:3], []).append(complaint)
    for (artifact, check, text), those in left.items():
        names = [complaint.of for complaint in those if complaint.of]
        yield Finding("wheel", labels[artifact], f"{check}: {text}", found=", ".join(names) or None)
    for allowance in allowed:
        for pattern in allowance.of:
            if not any(_is_for(allowance, pattern, complaint) for complaint in complaints):
                problem = f"allows {allowance.check} of {allowance.artifact} for {pattern}, which does not happen"
                yield Finding("allowance", file, problem, "no such allowance", allowance.reason)


def _is_for(allowance: Allowance, pattern: str, complaint: Complaint) -> bool:
    same = (allowance.artifact, allowance.check) == (complaint.artifact, complaint.check)
    return same and fnmatchcase(complaint.of, pattern)


def _ask(name: str, arguments: Sequence[str], statuses: tuple[int, ...]) -> str:
    """A program's answer. Its log goes where nothing stays: verifying changes nothing on disk."""
    program = Path(sys.executable).with_name(name)
    if not program.is_file():
        raise DoctorError(f"the tool environment has no {name}", expected=str(program), hint="./noxw -s verify")
    with tempfile.TemporaryDirectory(prefix="smokestack-") as scratch:
        answer = Path(scratch) / "answer"
        finished = commands.run(
            [str(program), *arguments],
            cwd=Path(scratch),
            # auditwheel unpacks what it looks at.
            env=child_environment(os.environ, {"NO_COLOR": "1", "TMPDIR": scratch}),
            log=Path(scratch) / f"{name}.log",
            answer=answer,
            limit_s=commands.ASK_LIMIT_S,
        )
        told = answer.read_text(encoding="utf-8", errors="replace")
    if finished.expired or finished.returncode not in statuses:
        raise BuildError(
            f"{name} did not answer",
            expected=f"exit status {' or '.join(map(str, statuses))}",
            found="\n    ".join([str(finished.returncode), *f"{told}\n{finished.output}".splitlines()[-20:]]),
        )
    return told
