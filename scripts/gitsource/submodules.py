"""The submodules that a revision records: where each lies and where it comes from. Knows addresses, fetches nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from scripts.errors import BuildError
from scripts.gitsource import verification
from scripts.gitsource.git import Git, Repository

_REMOTE = re.compile(r"(https?|ssh|git)://.+")
_SCP = re.compile(r"[A-Za-z0-9_][^/:]*:(?!:|//).+")
"""`git@host:path`; two colons would name a program that git is to run."""


@dataclass(frozen=True)
class Recorded:
    """A submodule as its parent records it. `address` is None when .gitmodules does not name it."""

    path: str
    revision: str
    address: str | None


def recorded(git: Git, at: Repository, revision: str) -> list[Recorded]:
    """The submodules of a revision that is checked out at `at`."""
    if not (at.folder / ".gitmodules").exists():
        return []  # if there are submodules all the same, they are missed, and named, when the files are verified
    links = verification.links(verification.entries(git, at, revision))
    if not links:
        return []
    answer = git.attempt(at, "config", "--blob", f"{revision}:.gitmodules", "--null", "--list")
    values = dict(record.partition("\n")[::2] for record in answer.records())
    addresses = {
        path: values.get(f"{name.removesuffix('.path')}.url")
        for name, path in values.items()
        if name.startswith("submodule.") and name.endswith(".path")
    }
    return [Recorded(path, oid, addresses.get(path)) for path, oid in sorted(links.items())]


def address(parent: str, submodule: Recorded) -> str:
    """Where a submodule of the repository `parent` is fetched from.

    Raises `BuildError` for one that names no address, a program, or a folder of this machine although `parent` lies on
    a server: what is fetched must not reach into the machine that fetches it.
    """
    found = submodule.address
    if found is None:
        raise BuildError(
            f"the submodule {submodule.path} has no address",
            expected="its url in .gitmodules",
            found=f"only its revision {submodule.revision}",
            where=parent,
        )
    resolved = resolve(parent, found)
    if _REMOTE.fullmatch(resolved) or (is_local(parent) and is_local(resolved)) or _SCP.fullmatch(resolved):
        return resolved
    raise BuildError(
        f"the address of the submodule {submodule.path} is not one to fetch from",
        expected="https, ssh or git" + (", or a folder, as its parent is one" if is_local(parent) else ""),
        found=found,
        where=parent,
    )


def resolve(parent: str, found: str) -> str:
    """An address in .gitmodules that begins with `./` or `../` is relative to the address of the repository itself."""
    if not found.startswith(("./", "../")):
        return found
    base, rest = parent.rstrip("/"), found
    while rest.startswith(("./", "../")):
        if rest.startswith("../"):
            base = re.sub(r"[/:][^/:]*$", "", base)
        rest = rest.partition("/")[2]
    return f"{base}/{rest}".rstrip("/")


def is_local(url: str) -> bool:
    """Whether an address is a folder of this machine."""
    return url.startswith(("/", "file://"))


def has_secret(url: str) -> bool:
    """Whether an address carries a password or token, which would be written into logs and manifests."""
    if "://" not in url:
        return False
    parts = urlsplit(url)
    return parts.password is not None or (parts.username is not None and parts.scheme in {"http", "https"})
