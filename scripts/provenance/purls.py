"""Names that the rest of the world knows: package URLs, by `packageurl`, and addresses of sources."""

from __future__ import annotations

import re

from packageurl import PackageURL

_GITHUB = re.compile(r"https://github\.com/(?P<owner>[^/]+)/(?P<name>[^/]+?)(\.git)?/?")


def published(name: str, version: str) -> PackageURL:
    """A distribution of a Python package index; which index had it is not part of what it is."""
    return PackageURL("pypi", None, name, version)


def ours(name: str, version: str, sha256: str) -> PackageURL:
    """A file that `build` made: no registry has it, so that its digest is its address."""
    return PackageURL("generic", None, name, version, qualifiers={"checksum": f"sha256:{sha256}"})


def tool(name: str, version: str) -> PackageURL:
    """A program of the machine, known by its version only."""
    return PackageURL("generic", None, name, version)


def git(name: str, repository: str, revision: str | None) -> PackageURL:
    """A repository at a revision, or, without one, wherever it is at the moment."""
    known = _GITHUB.fullmatch(repository)
    if known is not None:
        return PackageURL("github", known["owner"], known["name"], revision)
    return PackageURL("generic", None, name, revision, qualifiers={"vcs_url": git_uri(repository, revision)})


def git_uri(repository: str, revision: str | None) -> str:
    """A repository's address as SPDX writes it."""
    return f"git+{repository}" + (f"@{revision}" if revision else "")
