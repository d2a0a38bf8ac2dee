"""`provenance.json`: an in-toto Statement v1 with the SLSA Provenance v1 predicate, by in-toto's own messages.

It has no time and no invocation id: a build that is made again gives the same statement. It carries no signature and
says so; `signing` puts one beside it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance  # type: ignore[import-untyped]
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor  # type: ignore[import-untyped]
from in_toto_attestation.v1.statement import Statement  # type: ignore[import-untyped]

from scripts.errors import BuildError
from scripts.manifest import MANIFEST_NAME
from scripts.provenance import canonical
from scripts.provenance.facts import Facts
from scripts.provenance.materials import materials

PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://smokestack.invalid/build/v1"
"""Identifies; resolves to nothing, as the domain says. What it stands for is in docs/provenance.md."""
BUILDER_ID = "https://smokestack.invalid/builder/noxw"
"""Whatever machine ran `./noxw -s build`: only a signature says more about it."""
UNSIGNED = "none in this statement: whoever can write this file can change it; docs/signing.md"

_HEX_LENGTHS = {"sha256": 64, "gitCommit": 40, "gitTree": 40}


def about(facts: Facts, documents: Mapping[str, bytes]) -> bytes:
    """The statement about the artifacts, the manifest and `documents` (file name -> bytes)."""
    digests = {artifact.file: artifact.sha256 for artifact in facts.manifest.artifacts}
    texts = {**documents, MANIFEST_NAME: facts.manifest.text().encode()}
    digests |= {name: hashlib.sha256(content).hexdigest() for name, content in texts.items()}
    subjects = [ResourceDescriptor(name=name, digest={"sha256": digests[name]}).pb for name in sorted(digests)]
    content = canonical.encode(
        json_format.MessageToDict(Statement(subjects, PREDICATE_TYPE, json_format.MessageToDict(_provenance(facts))).pb)
    )
    check(content)
    return content


def check(content: bytes) -> None:
    """Raise `BuildError` unless `content` is a whole statement of this kind, without a field that its schemas lack."""
    try:
        message = Statement([], "", {})
        json_format.Parse(content.decode(), message.pb)
        message.validate()
        if message.pb.predicate_type != PREDICATE_TYPE:
            raise ValueError(f"its predicate is of type {message.pb.predicate_type!r}")
        for subject in message.pb.subject:
            _check_digests(subject.name, subject.digest)
        _check_provenance(json_format.ParseDict(json_format.MessageToDict(message.pb.predicate), Provenance()))
    except (ValueError, json_format.ParseError) as error:
        raise BuildError(
            "the provenance statement is not an in-toto statement with SLSA provenance",
            expected=PREDICATE_TYPE,
            found=str(error),
        ) from error


def _provenance(facts: Facts) -> Provenance:
    stack, manifest = facts.stack, facts.manifest
    predicate = Provenance()
    definition = predicate.build_definition
    definition.build_type = BUILD_TYPE
    definition.external_parameters.update(
        {
            "stack": stack.name,
            "stackFile": {"name": facts.stack_file.path, "digest": {"sha256": facts.stack_file.sha256}},
            "dirtySources": [source.name for source in manifest.sources if source.dirty],
        }
    )
    definition.internal_parameters.update(
        {
            "inputs": manifest.inputs,
            "platform": manifest.platform,
            "recipes": {} if stack.recipes is None else stack.recipes.model_dump(mode="json"),
            "signature": UNSIGNED,
        }
    )
    definition.resolved_dependencies.extend(
        ResourceDescriptor(each.name, each.uri, dict(each.digests), annotations=dict(each.notes)).pb
        for each in materials(facts)
    )
    predicate.run_details.builder.id = BUILDER_ID
    return predicate


def _check_provenance(predicate: Provenance) -> None:
    """What the specification requires and the messages alone do not."""
    required = {
        "buildDefinition.buildType": predicate.build_definition.build_type,
        "buildDefinition.externalParameters": predicate.build_definition.external_parameters.fields,
        "runDetails.builder.id": predicate.run_details.builder.id,
    }
    for name, value in required.items():
        if not value:
            raise ValueError(f"{name} is missing")
    for dependency in predicate.build_definition.resolved_dependencies:
        ResourceDescriptor.copy_from_pb(dependency).validate()
        _check_digests(dependency.name, dependency.digest)


def _check_digests(name: str, digests: Mapping[str, str]) -> None:
    for algorithm, value in digests.items():
        if not re.fullmatch(f"[0-9a-f]{{{_HEX_LENGTHS.get(algorithm, 64)}}}", value):
            raise ValueError(f"the {algorithm} of {name} is not whole: {value!r}")
