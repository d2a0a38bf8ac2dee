"""One wheel of ours, whose bytes are the manifest's: is it whole, is it what its name says, and where does it run?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.tags import InvalidTag, Tag, parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from scripts.manifest import Artifact
from scripts.verify import contents, members, portability, record, system
from scripts.verify.archive import Problem
from scripts.verify.contents import Contents
from scripts.verify.elf import Elf
from scripts.verify.findings import Finding, Kind
from scripts.verify.members import DAMAGED, Members
from scripts.wheels import dist_info_name


@dataclass(frozen=True)
class Checked:
    """What is wrong with a wheel, and what its machine code says of itself (member -> facts)."""

    findings: list[Finding]
    code: dict[str, Elf]
    platforms: frozenset[str]


def check_wheel(path: Path, label: str, artifact: Artifact, rules: Contents, build_folder: Path) -> Checked:
    """Everything that is wrong with a wheel. `build_folder` is where this machine builds: no member may name it."""
    info = dist_info_name(artifact.name, artifact.version)
    try:
        wheel = members.read(path, info, build_folder)
    except DAMAGED as error:
        return Checked([Finding("wheel", label, "is not a whole zip file", found=str(error))], {}, frozenset())
    tags = _tags_of_name(path)
    platforms = frozenset(tag.platform for tag in tags or ())
    code = {name: member.code for name, member in wheel.files.items() if member.code is not None}
    found = [
        *findings("wheel", label, wheel.problems),
        *findings("wheel", label, _identity(path, artifact, wheel, info, tags)),
        *findings("wheel", label, _record(wheel, info)),
        *findings("contents", label, _contents(rules, wheel)),
        *findings("platform", label, _platform(code, platforms)),
    ]
    return Checked(found, code, platforms)


def findings(kind: Kind, label: str, problems: Iterable[Problem]) -> Iterator[Finding]:
    """Problems with members as findings about their wheel."""
    for problem in problems:
        file = f"{label}: {problem.member}" if problem.member else label
        yield Finding(kind, file, problem.what, problem.expected, problem.found)


def _tags_of_name(path: Path) -> frozenset[Tag] | None:
    try:
        return parse_wheel_filename(path.name)[3]
    except (InvalidWheelFilename, InvalidVersion):
        return None


def _identity(
    path: Path, artifact: Artifact, wheel: Members, info: str, tags: frozenset[Tag] | None
) -> Iterator[Problem]:
    """The file's name, METADATA, WHEEL and the manifest tell one distribution, one version, one set of tags."""
    expected = f"{artifact.name} {artifact.version}"
    if tags is None:
        yield Problem("", "has not the name of a wheel", "name-version-python-abi-platform.whl", path.name)
    else:
        name, version, _, _ = parse_wheel_filename(path.name)
        if not _same(name, str(version), artifact):
            yield Problem("", "is named as another release than the manifest's", expected, f"{name} {version}")
    for file in ("METADATA", "WHEEL", "RECORD"):
        if file not in wheel.texts:
            yield Problem(f"{info}/{file}", "is not in the wheel")
    for other in sorted({name.partition("/")[0] for name in wheel.files} - {info}):
        if other.endswith(".dist-info"):
            yield Problem(other, "is the metadata of another release", info)
    if "METADATA" in wheel.texts:
        told = HeaderParser().parsestr(wheel.texts["METADATA"])
        if not _same(told["Name"] or "", told["Version"] or "", artifact):
            yield Problem(f"{info}/METADATA", "is of another release", expected, f"{told['Name']} {told['Version']}")
    if "WHEEL" in wheel.texts and tags is not None:
        yield from _tags(wheel.texts["WHEEL"], f"{info}/WHEEL", tags)
        pure = HeaderParser().parsestr(wheel.texts["WHEEL"])["Root-Is-Purelib"]
        if pure != "false" and any(member.code is not None for member in wheel.files.values()):
            yield Problem(f"{info}/WHEEL", "says that there is no machine code", "Root-Is-Purelib: false", pure)


def _same(name: str, version: str, artifact: Artifact) -> bool:
    try:
        return canonicalize_name(name) == artifact.name and Version(version) == Version(artifact.version)
    except InvalidVersion:
        return False


def _tags(text: str, member: str, tags: frozenset[Tag]) -> Iterator[Problem]:
    """WHEEL's tags against those of the file's name, both spelt out: installers believe the name."""
    lines = HeaderParser().parsestr(text).get_all("Tag") or []
    told: set[Tag] = set()
    for line in lines:
        try:
            told |= parse_tag(line)
        except (InvalidTag, ValueError):
            yield Problem(member, "has a tag that is none", found=line)
    if told != tags:
        yield Problem(member, "has other tags than the file's name", _spelt(tags), _spelt(told))


def _spelt(tags: Iterable[Tag]) -> str:
    return " ".join(sorted(str(tag) for tag in tags)) or "none"


def _record(wheel: Members, info: str) -> Iterator[Problem]:
    own = f"{info}/RECORD"
    if "RECORD" in wheel.texts:
        lines = {name: member.line for name, member in wheel.files.items() if name != own}
        yield from record.problems(wheel.texts["RECORD"], own, lines)


def _contents(rules: Contents, wheel: Members) -> Iterator[Problem]:
    yield from contents.problems(rules, {name: max(0, member.line.size) for name, member in wheel.files.items()})
    for name, member in wheel.files.items():
        code = member.code
        if any(fnmatchcase(name, pattern) for pattern in rules.programs):
            if code is None or not code.program:
                yield Problem(name, "is not an executable of machine code")
            if not member.executable:
                yield Problem(name, "may not be executed", "mode 0755", "mode 0644")
        elif contents.is_library(name) and code is None and member.line.size > 0:
            yield Problem(name, "is named as a library and is not machine code")


def _platform(code: dict[str, Elf], platforms: frozenset[str]) -> Iterator[Problem]:
    for name, facts in code.items():
        yield from portability.problems(name, facts, platforms)
        yield from system.problems(name, facts)
