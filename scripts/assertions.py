"""What is asserted of an environment before it counts as installed: that it is what the manifest says, byte for byte.

Each function raises `InstallError` with expected and found, or returns a line for the install's record.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts import commands, wheels
from scripts.dialects import DIALECTS, Parser, Program, undeclared_flags, unknown_flags
from scripts.environ import child_environment
from scripts.environment import Environment, uv_program
from scripts.errors import InstallError
from scripts.inventory import Entry
from scripts.manifest import Manifest
from scripts.wheels import RecordLine

_SHOWN = 8


def assert_installed(env: Environment, manifest: Manifest, entries: Mapping[str, Entry]) -> list[str]:
    """All assertions, cheapest first. `entries` are `inventory.take`'s: everything in the environment, read once."""
    asserted = [assert_packages(env, manifest.packages)]
    asserted.append(assert_files(env, manifest, entries))
    asserted += [assert_binary(env, manifest, name, entries) for name in manifest.binaries]
    asserted += [assert_program(env, manifest, program) for program in DIALECTS[manifest.dialect]]
    return asserted


def assert_packages(env: Environment, expected: Mapping[str, str]) -> str:
    """Exactly the manifest's distributions in exactly its versions."""
    found = env.distributions()
    differing = [
        f"{name} {found.get(name, 'absent')} (expected {expected.get(name, 'absent')})"
        for name in sorted(expected.keys() | found.keys())
        if found.get(name) != expected.get(name)
    ]
    if differing:
        raise _not_as_pinned("packages", env, differing)
    return f"{len(expected)} packages have the locked versions, and there are no others"


def assert_files(env: Environment, manifest: Manifest, entries: Mapping[str, Entry]) -> str:
    """Every installed file has the bytes that its wheel's RECORD promises."""
    other = [name for name, entry in entries.items() if entry.kind == "other"]
    if other:
        raise _not_as_pinned("files", env, other)
    promised = promises(env, manifest)
    differing = [
        shown
        for place, (shown, lines) in promised.items()
        if not any(_kept(entries.get(place), line) for line in lines)
    ]
    if differing:
        raise _not_as_pinned("files", env, differing)
    return f"{len(promised)} files are as their wheels' RECORD says"


def promises(env: Environment, manifest: Manifest) -> dict[str, tuple[str, tuple[RecordLine, ...]]]:
    """Path in the environment -> the RECORD's name for it, and its lines: any of these will do.

    Ours are held to the RECORD inside the wheel of `dist`, whose digest the manifest has; the others to the RECORD that
    was installed with them. uv links files from its cache, so a file that somebody edited in place in another
    environment would come back from there.
    """
    expected = env.records()
    for artifact in manifest.wheels:
        own = wheels.read_record(env.layout.dist / artifact.file, artifact.name, artifact.version)
        expected |= {name: (line,) for name, line in own.items()}
    base = env.site_packages.relative_to(env.path).as_posix()
    # Bytecode that a wheel carries is compiled again by the install.
    return {
        posixpath.normpath(f"{base}/{name}"): (name, lines)
        for name, lines in expected.items()
        if not name.endswith(".pyc")
    }


def assert_binary(env: Environment, manifest: Manifest, name: str, entries: Mapping[str, Entry]) -> str:
    """An executable has the pinned digest and runs."""
    binary = manifest.binaries[name]
    path = env.path / binary.path
    # It may be a link to a file inside a package.
    target = Path(os.path.realpath(path)).relative_to(os.path.realpath(env.path)).as_posix()
    entry = entries.get(target)
    found = "no such file" if entry is None else entry.content
    if found != binary.sha256:
        raise InstallError(f"{name} is not the pinned binary", expected=binary.sha256, found=found, where=str(path))
    output = _ask(env, (name, "--version"), f"{name} --version")
    return f"{binary.path} has sha256 {binary.sha256} and runs: {output.strip().splitlines()[0]}"


def assert_program(env: Environment, manifest: Manifest, program: Program | Parser) -> str:
    """A program's own help, or the module that declares its flags, has every flag that its commands will use."""
    unknown, where = _unknown(env, program)
    if unknown:
        raise InstallError(
            f"the {program.name} does not know flags of the dialect {manifest.dialect}",
            expected=" ".join(program.flags),
            found=f"unknown: {' '.join(unknown)}",
            where=where,
            hint="the stack file's `dialect` must be the one of the Dynamo release that it pins",
        )
    return f"the {program.name} knows {' '.join(program.flags)}"


def _unknown(env: Environment, program: Program | Parser) -> tuple[list[str], str]:
    """The flags that it does not know, and where that was looked up."""
    if isinstance(program, Program):
        text = _ask(env, program.argv, f"the {program.name}'s help")
        return unknown_flags(program.flags, text), " ".join(program.argv)
    path = env.site_packages / program.module
    if not path.is_file():
        raise InstallError(
            f"the module that declares the {program.name}'s flags is not there",
            expected=program.module,
            found="no such file",
            where=str(env.site_packages),
            hint="scripts/dialects.py names it; this release of vLLM may have moved it",
        )
    return undeclared_flags(program.flags, path.read_text(encoding="utf-8")), str(path)


def _ask(env: Environment, argv: tuple[str, ...], what: str) -> str:
    # Dynamo's programs leave a file in the temporary folder even when they only print their help.
    with tempfile.TemporaryDirectory(prefix="smokestack-") as scratch:
        added = {"VLLM_NO_USAGE_STATS": "1", "NO_COLOR": "1", "TMPDIR": scratch}
        return commands.check(
            [str(env.bin / argv[0]), *argv[1:]],
            cwd=env.path,
            env=child_environment(os.environ, added),
            log=env.layout.logs / f"{env.layout.stack}-{Path(argv[0]).name}-{argv[-1].strip('-')}.log",
            error=InstallError,
            what=what,
            limit_s=commands.ASK_LIMIT_S,
        )


def _kept(entry: Entry | None, line: RecordLine) -> bool:
    return entry is not None and entry.kind == "file" and entry.content == line.sha256


def fix(stack: str) -> str:
    """What to type when files of an environment are not as they should be."""
    return (
        f"./noxw -s install -- --stack {stack} --force\n"
        f"{uv_program()} cache clean   # before it, if it fails in the same way: uv's cache has the change as well"
    )


def _not_as_pinned(what: str, env: Environment, differing: list[str]) -> InstallError:
    more = f", and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return InstallError(
        f"the installed {what} are not the manifest's",
        expected="no difference",
        found=", ".join(differing[:_SHOWN]) + more,
        where=str(env.site_packages),
        hint=fix(env.layout.stack),
    )
