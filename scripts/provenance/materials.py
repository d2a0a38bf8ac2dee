"""Everything that went into a build, each with the digest that there is: the statement's `resolvedDependencies`.

A digest is only given where somebody checked it. What floats, and what the machine brought, is listed without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scripts.manifest import LockFile, SourceFile, SourceRevision
from scripts.provenance import purls
from scripts.provenance.facts import Facts

FILES_SHA256 = "smokestackFilesSha256"
"""Our own digest of a folder, for which there is no common one: `scripts.digests.files_sha256`."""


@dataclass(frozen=True)
class Material:
    """One input. `uri`: none for a file of this project; `digests`: algorithm -> hex; `notes`: what to know of it."""

    name: str
    uri: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str | bool] = field(default_factory=dict)


def materials(facts: Facts) -> list[Material]:
    """All of them, in a fixed order, each once."""
    found = {
        (material.name, material.uri): material
        for material in (
            *(_file(file) for file in (facts.stack_file, *facts.locks)),
            *(each for source in facts.manifest.sources for each in _source(source)),
            *(made_from(file) for artifact in facts.manifest.artifacts for file in artifact.made_from),
            *(_versioned(f"tool {name}", name, version) for name, version in facts.manifest.tools.items()),
            _versioned("python", "python", facts.manifest.python),
        )
    }
    return [found[key] for key in sorted(found)]


def is_published(file: SourceFile) -> bool:
    """Whether an artifact was made from a distribution of an index (`name==version`), not from a folder of ours."""
    return "==" in file.file


def made_from(file: SourceFile) -> Material:
    """A published wheel, or a folder of this project."""
    if is_published(file):
        name, _, version = file.file.partition("==")
        return Material(file.file, str(purls.published(name, version)), {"sha256": file.sha256})
    return Material(file.file, digests={FILES_SHA256: file.sha256})


def _versioned(role: str, program: str, version: str) -> Material:
    return Material(role, str(purls.tool(program, version)), notes={"version": version})


def _file(file: LockFile) -> Material:
    return Material(file.path, digests={"sha256": file.sha256})


def _source(source: SourceRevision) -> Iterator[Material]:
    """A repository, its submodules, and what it fetches by itself while it is built."""
    tree = {"gitTree": source.tree} if source.tree else {}
    if source.dirty:
        # The revision's digest would vouch for files that are not the revision's.
        uri, digests = purls.git_uri(source.repository, None), tree
        notes: dict[str, str | bool] = {"dirty": True, "changedFrom": source.revision}
    else:
        uri, digests = purls.git_uri(source.repository, source.revision), {"gitCommit": source.revision} | tree
        notes = {} if source.tree else {"built": False}
    yield Material(source.name, uri, digests, notes)
    for module in source.submodules:
        digests = {"gitCommit": module.revision}
        yield Material(f"{source.name}/{module.path}", f"{uri}#{module.path}", digests, {"submodule": True})
    for nested in source.nested:
        floats = nested.floating or nested.revision is None
        digests = {} if floats or nested.revision is None else {"gitCommit": nested.revision}
        uri = purls.git_uri(nested.repository, nested.revision) if nested.repository else ""
        yield Material(f"{source.name}/{nested.name}", uri, digests, {"nested": True, "floating": floats})
