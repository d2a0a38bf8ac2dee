"""An environment with one wrong package, beside the sound one: all else in it is links to the sound one's files."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.errors import DoctorError

PACKAGE = "smokestack_payload"
"""The package that is wrong: of no other package does the stack need to know the version."""

WRONG_VERSION = "0.0.0+sabotage"


def with_wrong_package(environment: Path, at: Path) -> Path:
    """Make it at `at` and return that; programs run from it as from `environment`, which stays as it is."""
    [site] = environment.glob("lib/python3*/site-packages")
    copy = at / site.relative_to(environment)
    copy.mkdir(parents=True)
    _link_all(environment, at, apart_from=site.parents[1])
    _link_all(site.parent, copy.parent, apart_from=site)
    infos = list(site.glob(f"{PACKAGE}-*.dist-info"))
    if len(infos) != 1:
        raise DoctorError(
            "the sabotage cannot make an environment with a wrong package",
            expected=f"one {PACKAGE}-*.dist-info",
            found=str([info.name for info in infos]),
            where=str(site),
        )
    _link_all(site, copy, apart_from=infos[0])
    _another_version(infos[0], copy / f"{PACKAGE}-{WRONG_VERSION}.dist-info")
    return at


def _link_all(folder: Path, into: Path, *, apart_from: Path) -> None:
    for entry in folder.iterdir():
        if entry != apart_from:
            (into / entry.name).symlink_to(entry)


def _another_version(info: Path, copy: Path) -> None:
    """The package's own metadata, entry points and all, but for the version."""
    shutil.copytree(info, copy)
    metadata = copy / "METADATA"
    lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
    wrong = [f"Version: {WRONG_VERSION}\n" if line.startswith("Version: ") else line for line in lines]
    metadata.write_text("".join(wrong), encoding="utf-8")
