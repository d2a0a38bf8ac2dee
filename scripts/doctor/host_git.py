"""Group host: git, and whether it trusts the folders that it is used in."""

from __future__ import annotations

from pathlib import Path

from scripts.doctor import versions
from scripts.doctor.host_paths import quoted
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

OLDEST_GIT = (2, 25)


def _git(subject: Subject) -> Finding:
    required = f"git {versions.dotted(OLDEST_GIT)} or newer"
    fix = "sudo apt-get install -y git"
    answer = subject.ask("git", "--version")
    version = versions.parse(answer.output) if answer.good else None
    if version is not None and version >= OLDEST_GIT:
        return ok(f"git {versions.dotted(version)}", required)
    found = f"git {versions.dotted(version)}" if version else answer.in_short
    if subject.stack.from_source:
        return fail(found, required, fix)
    return warn(f"{found}; evidence will not name the project's revision", required, fix)


def _safe_directory(subject: Subject) -> Finding:
    required = "folders that are yours, or named in git's safe.directory"
    folders = [subject.root, *subject.options.sources.values()]
    present = [path for path in folders if subject.machine.exists(path / ".git")]
    if not present:
        return skip("no checkout of git here", required)
    if subject.which("git") is None:
        return skip("no git to ask", required)
    refused = [path for path in present if _is_refused(subject, path)]
    if not refused:
        return ok(", ".join(map(str, present)), required)
    fix = " && ".join(f"git config --global --add safe.directory {quoted(path)}" for path in refused)
    found = f"git refuses {', '.join(map(str, refused))}, which another user owns"
    if any(path in subject.options.sources.values() for path in refused):
        return fail(found, required, fix)
    return warn(f"{found}: evidence will not name the project's revision", required, fix)


def _is_refused(subject: Subject, path: Path) -> bool:
    answer = subject.ask("git", "-C", str(path), "rev-parse", "--git-dir")
    return not answer.good and "dubious ownership" in answer.output


CHECKS = (
    Check(
        id="host.git",
        title="git",
        group="host",
        why="sources are fetched and verified with it, and evidence names the project's revision",
        symptom="git: command not found, or a revision that the server does not give out",
        cause="no git, or one from before protocol version 2",
        looks_at="git --version",
        fix="sudo apt-get install -y git",
        reference="https://git-scm.com/docs/protocol-v2",
        needed_for=("build", "run"),
        look=_git,
    ),
    Check(
        id="host.safe-directory",
        title="safe.directory",
        group="host",
        why="git looks into no checkout of another user, and a build without git has no version",
        symptom="detected dubious ownership in repository, or LookupError of setuptools-scm",
        cause="the checkout was made by another user, as with a folder mounted into a container",
        looks_at="git rev-parse in the project and in the checkouts that were given",
        fix="git config --global --add safe.directory FOLDER",
        reference="https://github.com/vllm-project/vllm/issues/9182",
        needed_for=("build", "run"),
        look=_safe_directory,
        rows=(3,),
    ),
)
