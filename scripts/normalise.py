"""`python -m scripts.normalise IN OUT_DIR --epoch SECONDS [--prefix PATH]…`: a built wheel, written again the same way.

The last step of every recipe: setuptools, maturin and hatchling each leave their own order, dates and modes, and what
they embed tells the hour and the folder of the build. Afterwards a wheel's bytes depend on its contents alone (members
as `wheels` writes them, so `--epoch` dates what is inside documents). What cannot be made right is refused; doing it
twice changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts import commands, embedded_sbom, strict_wheel, wheels
from scripts.build_paths import BuildPaths
from scripts.console import Console
from scripts.errors import BuildError, BuildPlaneError, UsageError
from scripts.publish import publishing
from scripts.strict_wheel import StrictWheel
from scripts.wheels import Member

INTERRUPTED = 130
# Installers write these into an environment. In a wheel they tell of the machine that it was built on.
_INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")
_LATEST_EPOCH = 253402300799
_TEXTS = ("METADATA", "WHEEL", "entry_points.txt")
_SHOWN = 8


def normalise(wheel: Path, target: Path, *, epoch: int, prefixes: Sequence[str]) -> tuple[str, ...]:
    """Write `wheel` to `target` in the one form that its contents have; `prefixes` are folders of the build.

    Returns what was put right, and a line that begins with "warning" for each prefix that is left in a member's bytes.
    Raises `BuildError` for a wheel that cannot be made right, `UsageError` for a wrong epoch or prefix.
    """
    if not 0 <= epoch <= _LATEST_EPOCH:
        raise UsageError(
            "the epoch is no date",
            expected=f"seconds since 1970, up to {_LATEST_EPOCH}",
            found=str(epoch),
            hint="give a revision's own: git log -1 --format=%ct",
        )
    paths = BuildPaths.of(prefixes)
    with strict_wheel.opened(wheel) as source:
        for name in map(source.metadata, _TEXTS):
            if name in source.record:
                source.text(name)
        dropped = [name for name in map(source.metadata, _INSTALLERS) if name in source.record]
        tags, tag_notes = _agreeing_tags(source)
        boms, bom_notes = _documents(source, epoch, paths)
        rewritten = {**tags, **boms}
        unwanted = {source.metadata("RECORD"), *dropped}
        members = [member for member in wheels.members(source.archive) if member.name not in unwanted]
        contents = [_replaced(member, rewritten) for member in members]
        warnings = _check(source, members, contents, paths)
        with publishing(target) as partial:
            wheels.write(partial, contents, source.dist_info)
    left_out = [f"left out {name}, which installers write" for name in dropped]
    return (*tag_notes, *left_out, *bom_notes, *warnings)


def _agreeing_tags(source: StrictWheel) -> tuple[dict[str, str], list[str]]:
    """WHEEL with the tags of the file's name, which is what installers believe, where it has others."""
    name = source.metadata("WHEEL")
    text = source.text(name)
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.startswith("Tag:")]
    if not places:
        raise BuildError("a wheel's WHEEL has no tag", expected=", ".join(sorted(source.tags)), found=text)
    told = {lines[place].removeprefix("Tag:").strip() for place in places}
    if told == source.tags:
        return {}, []
    first = lines[places[0]]
    end = first[len(first.rstrip("\r\n")) :]
    right = [f"Tag: {tag}{end or chr(10)}" for tag in sorted(source.tags)]
    kept = [line for number, line in enumerate(lines) if number not in places]
    note = f"WHEEL said {', '.join(sorted(told))}; now {', '.join(sorted(source.tags))}, as the file's name does"
    return {name: "".join([*kept[: places[0]], *right, *kept[places[0] :]])}, [note]


def _documents(source: StrictWheel, epoch: int, paths: BuildPaths) -> tuple[dict[str, str], list[str]]:
    """Every SBOM of the wheel in its normal form; those of another kind are only named."""
    rewritten, notes = {}, []
    for name in sorted(name for name in source.record if name.startswith(source.metadata("sboms/"))):
        normal = None
        if name.endswith(".json"):
            text = source.text(name)
            normal = embedded_sbom.normalised(text, epoch=epoch, paths=paths)
        if normal is None:
            notes.append(f"left {name} as it is: no CycloneDX document in JSON")
        elif normal != text:
            rewritten[name] = normal
            notes.append(f"dated and numbered {name} anew, without build paths")
    return rewritten, notes


def _replaced(member: Member, rewritten: Mapping[str, str]) -> Member:
    text = rewritten.get(member.name)
    return member if text is None else wheels.text_member(member.name, text)


def _check(source: StrictWheel, members: Sequence[Member], contents: Sequence[Member], paths: BuildPaths) -> list[str]:
    """Hold the members to RECORD, and look for build paths in what is about to be written.

    A member that something changed after RECORD was written would otherwise leave here with a RECORD that is right.
    """
    holding: dict[str, list[str]] = {}
    for before, after in zip(members, contents, strict=True):
        with before.open() as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
        expected = source.record[before.name].sha256
        if found != expected:
            raise BuildError(f"{before.name} is not what the wheel's RECORD says", expected=expected, found=found)
        with after.open() as stream:
            for prefix in paths.found_in(stream):
                holding.setdefault(prefix, []).append(after.name)
    return [_warning(prefix, names) for prefix, names in sorted(holding.items())]


def _warning(prefix: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"warning: the build path {prefix} is left in {', '.join(names[:_SHOWN])}{more}: other folders, other bytes"


def _only_wheel(given: Path) -> Path:
    """A wheel, or the one in a folder: what a build will call its wheel need not be known before."""
    if not given.is_dir():
        if given.is_file():
            return given
        raise BuildError("there is no wheel to normalise", expected=str(given), found="no such file")
    found = sorted(path for path in given.glob("*.whl") if not path.name.startswith("."))
    if len(found) != 1:
        names = ", ".join(path.name for path in found)
        raise BuildError("the build left not one wheel", expected="one", found=names or "none", where=str(given))
    return found[0]


def main(argv: Sequence[str]) -> int:
    """The command: what was put right goes to stderr. The status is that of `errors`, 130 when told to stop."""
    parser = argparse.ArgumentParser(prog="python -m scripts.normalise", description="a built wheel in its one form")
    parser.add_argument("wheel", type=Path, metavar="IN", help="a wheel, or a folder with one wheel in it")
    parser.add_argument("folder", type=Path, metavar="OUT_DIR", help="where it goes, under the same name")
    parser.add_argument("--epoch", type=int, required=True, metavar="SECONDS", help="the date in embedded documents")
    parser.add_argument("--prefix", action="append", default=[], metavar="PATH", help="a folder of the build")
    options = parser.parse_args(argv)
    console = Console(sys.stderr)
    commands.stop_on_signals()
    try:
        wheel = _only_wheel(options.wheel)
        target = options.folder / wheel.name
        if target.exists() and target.samefile(wheel):
            raise UsageError(
                "the wheel would be written over itself",
                expected="another folder",
                found=str(target),
                hint="name a folder that the wheel does not lie in",
            )
        for note in normalise(wheel, target, epoch=options.epoch, prefixes=options.prefix):
            console.say(note)
    except BuildPlaneError as error:
        console.say(f"error: {error}")
        return error.exit_code
    except OSError as error:
        console.say(f"error: {error}")
        return BuildError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
