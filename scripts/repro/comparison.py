"""Two results of one build, or three, file by file: which level of reproducibility each file was seen to have."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.build_paths import BuildPaths
from scripts.digests import file_sha256


class Level(enum.StrEnum):
    """Each includes those before it, but for the inputs: a source that floats may be the same twice by chance."""

    UNPINNED = "inputs not pinned"
    INPUTS = "inputs verified"
    SAME_PATH = "same-path equal"
    DIFFERENT_PATH = "different-path equal"


@dataclass(frozen=True)
class FileResult:
    """One file of `dist/<stack>`; `sha256` of each build in turn, None where it is absent.

    `held`: folders that all builds had in common and that are in the file. It would be another one without them.
    """

    file: str
    level: Level
    sha256: tuple[str | None, ...]
    held: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return self.level is Level.DIFFERENT_PATH


def differing(first: Path, second: Path) -> list[str]:
    """The files that are not in both folders with the same bytes."""
    one, other = _digests(first), _digests(second)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def compare(results: Sequence[Path], *, pinned: bool, common: BuildPaths) -> list[FileResult]:
    """Every file of the first two results, which come from different folders, and of a third from the first's folder.

    `pinned`: no input of the build was left to chance. `common` are folders that the builds shared.
    """
    digests = [_digests(folder) for folder in results]
    names = sorted(set().union(*digests))
    judged = [_judged(name, tuple(each.get(name) for each in digests), pinned=pinned) for name in names]
    return [_without_common(result, results[0], common) if result.equal else result for result in judged]


def _judged(name: str, found: tuple[str | None, ...], *, pinned: bool) -> FileResult:
    first, second, *again = found
    if first is not None and first == second:
        return FileResult(name, Level.DIFFERENT_PATH, found)
    if first is not None and again == [first]:
        return FileResult(name, Level.SAME_PATH, found)
    return FileResult(name, Level.INPUTS if pinned else Level.UNPINNED, found)


def _without_common(result: FileResult, folder: Path, common: BuildPaths) -> FileResult:
    """Equal bytes prove nothing of a path that was the same in both builds. Our wheels are stored: it can be seen."""
    with (folder / result.file).open("rb") as stream:
        held = tuple(sorted(common.found_in(stream)))
    return replace(result, level=Level.SAME_PATH, held=held) if held else result


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): file_sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
