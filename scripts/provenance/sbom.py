"""`sbom.cdx.json`: a CycloneDX bill of materials of the stack's environment, by CycloneDX's own library.

What is in it, not how it was built: that is the statement's. It has no time, and its serial number is a digest of what
it says, so that a build that is made again gives the same document. Licences are not in it: the wheels' metadata is not
there when a build writes it.
"""

from __future__ import annotations

import json
import uuid

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
from cyclonedx.output.json import JsonV1Dot7

from scripts.provenance import canonical, lockgraph, purls
from scripts.provenance.artifacts import artifact_components
from scripts.provenance.edges import dependency_edges
from scripts.provenance.facts import Facts
from scripts.provenance.packages import package_component

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://smokestack.invalid/sbom/v1")


def of(facts: Facts) -> bytes:
    """The bill of materials of the environment that is installed from this build."""
    bom = Bom(serial_number=uuid.UUID(int=0), metadata=_metadata(facts))
    _fill(bom, facts)
    bom.serial_number = uuid.uuid5(_NAMESPACE, _encode(bom).decode())
    return _encode(bom)


def _encode(bom: Bom) -> bytes:
    return canonical.encode(json.loads(JsonV1Dot7(bom).output_as_string()))


def _metadata(facts: Facts) -> BomMetaData:
    manifest = facts.manifest
    stack = Component(
        type=ComponentType.APPLICATION,
        name=manifest.stack,
        version=manifest.inputs,
        description=manifest.summary,
        bom_ref=f"stack:{manifest.stack}",
        properties=[Property(name="smokestack:lock:sha256", value=manifest.lock.sha256)],
    )
    metadata = BomMetaData(component=stack, lifecycles=[PredefinedLifecycle(LifecyclePhase.BUILD)])
    # The library stamps the time of day; the schema lets it be left out.
    metadata.timestamp = None  # type: ignore[assignment]
    return metadata


def _fill(bom: Bom, facts: Facts) -> None:
    """All components, and who needs what."""
    packages = {name: package_component(name, pin, facts.stack) for name, pin in facts.locked.items()}
    ours = artifact_components(facts)
    python = Component(
        type=ComponentType.PLATFORM,
        name="python",
        version=facts.manifest.python,
        purl=purls.tool("python", facts.manifest.python),
        bom_ref="python",
    )
    stack = bom.metadata.component
    assert stack is not None
    bom.components.update([*packages.values(), *ours.values(), python])
    bom.register_dependency(stack, [python])
    known = {lockgraph.ROOT: stack, **packages, **ours}
    for requirer, name in dependency_edges(facts):
        bom.register_dependency(known[requirer], [known[name]])
