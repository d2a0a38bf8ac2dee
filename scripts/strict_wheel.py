"""A wheel as a build tool left it, opened only when it can be written again without a guess.

Imports the wheel format and the errors of the project, nothing else of it.
"""

from __future__ import annotations

import contextlib
import stat
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from scripts import wheels
from scripts.errors import BuildError
from scripts.wheels import RecordLine

_UTF8_NAME = 0x800
_ENCRYPTED = 0x1
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True)
class StrictWheel:
    """An open wheel. `tags` are those of the file's name, `record` what its RECORD says of every other file."""

    archive: zipfile.ZipFile
    dist_info: str
    tags: frozenset[str]
    record: Mapping[str, RecordLine]

    def text(self, name: str) -> str:
        """A metadata file's text, its line ends as they are. Raises `BuildError` when it is absent or not UTF-8."""
        return _text(self.archive, name)

    def metadata(self, name: str) -> str:
        """The member's name of a metadata file."""
        return f"{self.dist_info}/{name}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[StrictWheel]:
    """Raises `BuildError` that names what is wrong with the wheel, also while its members are read in the block."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            for info in infos:
                _check_member(info)
            _check_names([info.filename for info in infos])
            dist_info, tags = _identify(path, [info.filename for info in infos])
            yield StrictWheel(archive, dist_info, tags, _record(archive, dist_info))
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise BuildError("the wheel is damaged", found=str(error), where=str(path)) from error
    except BuildError as error:
        error.where = error.where or str(path)
        raise


def _check_member(info: zipfile.ZipInfo) -> None:
    name, kind = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    if stat.S_ISLNK(kind):
        raise BuildError(f"{name} in a wheel is a symbolic link", expected="files only: installers do not make links")
    if kind and not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise BuildError(f"{name} in a wheel is no file", expected="files only", found=f"mode {kind:#o}")
    if info.flag_bits & _ENCRYPTED:
        raise BuildError(f"{name} in a wheel is encrypted", expected="a file that can be read")
    if not name.isascii() and not info.flag_bits & _UTF8_NAME:
        raise BuildError("a name in a wheel is not UTF-8", expected="the zip file's UTF-8 flag", found=repr(name))
    # A folder's entry ends with a slash.
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or not all(_plain(part) for part in parts) or name[1:2] == ":":
        raise BuildError(
            "a name in a wheel leaves the folder that it is unpacked into, or reads differently elsewhere",
            expected="plain relative names",
            found=repr(name),
        )


def _plain(part: str) -> bool:
    return part not in {"", ".", ".."} and not any(unicodedata.category(letter) == "Cc" for letter in part)


def _check_names(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BuildError("a wheel contains the same file twice", found=name)
        seen.add(name)
    for name in names:
        for parent in PurePosixPath(name).parents:
            if str(parent) in seen:
                raise BuildError("a name in a wheel is both a file and a folder", found=str(parent))


def _identify(path: Path, names: list[str]) -> tuple[str, frozenset[str]]:
    """The metadata folder, held to the file's name, and the tags of that name."""
    try:
        distribution, version, _, tags = parse_wheel_filename(path.name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise BuildError("the file's name is not a wheel's", found=str(error)) from error
    tops = {name.partition("/")[0] for name in names}
    folders = sorted(name for name in tops if name.endswith(".dist-info"))
    expected = f"one {wheels.dist_info_name(distribution, str(version))}"
    if len(folders) != 1:
        raise BuildError("a wheel has not one metadata folder", expected=expected, found=", ".join(folders) or "none")
    name, _, told = folders[0].removesuffix(".dist-info").partition("-")
    if canonicalize_name(name) != distribution or _version(told) != version:
        raise BuildError("a wheel's metadata is of another release than its name", expected=expected, found=folders[0])
    return folders[0], frozenset(str(tag) for tag in tags)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _record(archive: zipfile.ZipFile, dist_info: str) -> dict[str, RecordLine]:
    """RECORD, which has to tell every file's SHA-256 and name no other."""
    own = f"{dist_info}/RECORD"
    names = {info.filename for info in archive.infolist() if not info.is_dir()}
    for signature in _SIGNATURES:
        if f"{dist_info}/{signature}" in names:
            raise BuildError("the wheel is signed, and would be no longer", found=signature)
    try:
        record = wheels.parse_record(_text(archive, own))
    except ValueError as error:
        raise BuildError("a wheel's RECORD cannot be read", found=str(error)) from error
    wrong = sorted((names - {own}) ^ record.keys())
    if wrong:
        raise BuildError(
            "a wheel's RECORD does not list its files",
            expected="each file with its SHA-256, and no other",
            found=", ".join(wrong[:8]),
        )
    return record


def _text(archive: zipfile.ZipFile, name: str) -> str:
    try:
        return archive.read(name).decode("utf-8")
    except KeyError as missing:
        raise BuildError(f"the wheel has no {name}", expected="a complete wheel") from missing
    except UnicodeDecodeError as error:
        raise BuildError(f"{name} in a wheel is not UTF-8", found=str(error)) from error
