"""The SBOM's components that `build` made: what they contain, and what they were made from."""

from __future__ import annotations

from cyclonedx.model import HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.component import Commit, Component, ComponentType, Pedigree

from scripts.errors import BuildError
from scripts.manifest import Artifact, NestedRevision, SourceFile, SourceRevision
from scripts.provenance import purls
from scripts.provenance.facts import Facts
from scripts.provenance.materials import is_published

# Artifact -> recipe of the stack file that makes it.
RECIPES = {"vllm": "vllm", "ai-dynamo": "dynamo", "ai-dynamo-runtime": "dynamo", "dynamo-vllm-sidecar": "sidecar"}


def artifact_components(facts: Facts) -> dict[str, Component]:
    """Artifact's name -> component."""
    return {artifact.name: _component(artifact, facts) for artifact in facts.manifest.artifacts}


def _component(artifact: Artifact, facts: Facts) -> Component:
    reference = f"artifact:{artifact.file}"
    source = _source(artifact, facts)
    return Component(
        type=ComponentType.APPLICATION if artifact.kind == "binary" else ComponentType.LIBRARY,
        name=artifact.name,
        version=artifact.version,
        purl=purls.ours(artifact.name, artifact.version, artifact.sha256),
        bom_ref=reference,
        hashes=[_sha256(artifact.sha256)],
        properties=[Property(name="smokestack:file", value=artifact.file)],
        pedigree=_from_files(artifact, reference) if source is None else _from_source(source, reference),
        components=[*_binaries(artifact, facts, reference), *_nested(source, reference)],
    )


def _source(artifact: Artifact, facts: Facts) -> SourceRevision | None:
    """The repository that an artifact was built from; None for one that was made of files."""
    recipe = RECIPES.get(artifact.name)
    if facts.stack.recipes is None or recipe is None:
        return None
    name = getattr(facts.stack.recipes, recipe).source
    source = next((each for each in facts.manifest.sources if each.name == name), None)
    if source is None:
        raise BuildError(f"the manifest lacks the source that {artifact.file} was built from", expected=name)
    return source


def _from_files(artifact: Artifact, reference: str) -> Pedigree:
    return Pedigree(ancestors=[_ancestor(file, reference) for file in artifact.made_from])


def _ancestor(file: SourceFile, reference: str) -> Component:
    if is_published(file):
        name, _, version = file.file.partition("==")
        return Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=version,
            purl=purls.published(name, version),
            bom_ref=f"{reference}<{file.file}",
            hashes=[_sha256(file.sha256)],
        )
    # A folder's digest is none of the algorithms of the schema.
    return Component(
        type=ComponentType.LIBRARY,
        name=file.file,
        bom_ref=f"{reference}<{file.file}",
        properties=[Property(name="smokestack:files:sha256", value=file.sha256)],
    )


def _from_source(source: SourceRevision, reference: str) -> Pedigree:
    """A repository at a revision; of a dirty one only that it is not the revision's files."""
    ancestor = Component(
        type=ComponentType.LIBRARY,
        name=source.name,
        version=source.revision,
        purl=purls.git(source.name, source.repository, source.revision),
        bom_ref=f"{reference}<{source.name}",
    )
    if source.dirty:
        return Pedigree(ancestors=[ancestor], notes=f"built from changed files, git tree {source.tree}")
    commit = Commit(uid=source.revision, url=XsUri(purls.git_uri(source.repository, source.revision)))
    return Pedigree(ancestors=[ancestor], commits=[commit])


def _binaries(artifact: Artifact, facts: Facts, reference: str) -> list[Component]:
    """The executables inside the engine's wheel: those of the manifest that are no artifacts of their own."""
    engine = "vllm" if facts.stack.engine is None else facts.stack.engine.distribution
    own = {each.sha256 for each in facts.manifest.artifacts}
    return [
        Component(
            type=ComponentType.APPLICATION,
            name=name,
            bom_ref=f"{reference}#{name}",
            hashes=[_sha256(binary.sha256)],
        )
        for name, binary in sorted(facts.manifest.binaries.items())
        if artifact.name == engine and binary.sha256 not in own
    ]


def _nested(source: SourceRevision | None, reference: str) -> list[Component]:
    return [] if source is None else [_nested_component(nested, reference) for nested in source.nested]


def _nested_component(nested: NestedRevision, reference: str) -> Component:
    """A source that ended up in the artifact; a floating one has no version, since nobody knows it."""
    return Component(
        type=ComponentType.LIBRARY,
        name=nested.name,
        version=None if nested.floating else nested.revision,
        purl=None if nested.repository is None else purls.git(nested.name, nested.repository, nested.revision),
        bom_ref=f"{reference}#{nested.name}",
        properties=[Property(name="smokestack:floating", value="true")] if nested.floating else [],
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
