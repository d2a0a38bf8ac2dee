"""An SBOM that a build tool embedded: dated, numbered and ordered by what it says, and still one that is valid."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from built_wheel import cargo_sbom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.build_paths import BuildPaths
from scripts.embedded_sbom import normalised
from scripts.errors import BuildError

NUMBER = "5d00fbdf-8ab1-4284-86d1-bca18c951244"
MOMENT = "2026-10-16T23:58:57.502219166Z"
EPOCH = 1_700_000_000


def plain(text: str, *prefixes: str, epoch: int = EPOCH) -> str:
    result = normalised(text, epoch=epoch, paths=BuildPaths.of(prefixes))
    assert result is not None
    return result


def document(text: str, *prefixes: str) -> Any:
    return json.loads(plain(text, *prefixes))


def test_the_date_is_the_epoch_and_the_number_follows_the_content() -> None:
    one = document(cargo_sbom("/b", number=NUMBER, moment=MOMENT), "/b")
    other = document(cargo_sbom("/b", number=str(uuid.uuid4()), moment="2020-01-01T00:00:00Z"), "/b")
    changed = document(cargo_sbom("/b", number=NUMBER, moment=MOMENT, extra={"version": 2}), "/b")
    assert one == other
    assert one["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert uuid.UUID(one["serialNumber"].removeprefix("urn:uuid:")).version == 5
    assert one["serialNumber"] != changed["serialNumber"]


def test_paths_go_out_of_every_reference_and_the_references_still_meet() -> None:
    result = document(cargo_sbom("/build/a place", number=NUMBER, moment=MOMENT), "/build/a place")
    refs = {result["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in result["components"])}
    assert "/build" not in json.dumps(result)
    assert refs == {
        "path+file:///bindings#demo@1.0",
        "path+file:///lib/kernels#kernels@1.0",
        "path+file:///lib/router#router@1.0",
    }
    assert {each["ref"] for each in result["dependencies"]} == refs
    assert {ref for each in result["dependencies"] for ref in each.get("dependsOn", [])} < refs
    assert result["components"][0]["purl"] == "pkg:cargo/x@1.0?download_url=file:///lib"


@pytest.mark.parametrize("spelling", ["/build%20er/x", "%2Fbuild%20er%2Fx", "%2fbuild%20er%2fx"])
def test_paths_that_a_url_escapes_go_out_as_well(spelling: str) -> None:
    text = json.dumps({"bomFormat": "CycloneDX", "note": f"pkg:cargo/x?download_url=file:%2F%2F{spelling}/lib"})
    assert document(text, "/build er/x")["note"] == "pkg:cargo/x?download_url=file:%2F%2F/lib"


def test_the_order_of_lists_without_an_order_does_not_matter() -> None:
    text = cargo_sbom("/b", number=NUMBER, moment=MOMENT)
    turned = json.loads(text)
    turned["components"].reverse()
    turned["dependencies"].reverse()
    for each in turned["dependencies"]:
        each.get("dependsOn", []).reverse()
    assert plain(text, "/b") == plain(json.dumps(dict(reversed(turned.items()))), "/b")


def test_links_to_the_documents_own_parts_follow_its_number() -> None:
    link = {"externalReferences": [{"type": "bom", "url": f"urn:cdx:{NUMBER}/1#part"}]}
    result = document(cargo_sbom("/b", number=NUMBER, moment=MOMENT, extra=link), "/b")
    own = result["serialNumber"].removeprefix("urn:uuid:")
    assert result["externalReferences"][0]["url"] == f"urn:cdx:{own}/1#part"


def test_a_document_without_number_and_date_gets_none() -> None:
    assert document('{"bomFormat": "CycloneDX", "metadata": {}}') == {"bomFormat": "CycloneDX", "metadata": {}}


def test_dates_of_what_is_described_stay() -> None:
    commit = {"pedigree": {"commits": [{"author": {"timestamp": MOMENT}}]}}
    assert document(json.dumps({"bomFormat": "CycloneDX", "components": [commit]}))["components"] == [commit]


def test_the_result_is_valid_by_the_schema() -> None:
    result = plain(cargo_sbom("/b", number=NUMBER, moment=MOMENT), "/b")
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(result) is None


def test_references_that_only_the_path_told_apart_are_refused() -> None:
    components = [{"bom-ref": "path+file:///a/lib#x@1"}, {"bom-ref": "path+file:///b/lib#x@1"}]
    text = json.dumps({"bomFormat": "CycloneDX", "components": components})
    with pytest.raises(BuildError, match="only a build path tells apart"):
        plain(text, "/a", "/b")


@pytest.mark.parametrize("text", ["", "{", '{"bomFormat": "CycloneDX", "x": NaN}'])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(BuildError, match="not JSON"):
        plain(text)


@pytest.mark.parametrize("text", ["[]", "{}", '"x"', '{"spdxVersion": "SPDX-2.3"}'])
def test_another_kind_of_document_is_not_touched(text: str) -> None:
    assert normalised(text, epoch=0, paths=BuildPaths.of([])) is None


NAMES = st.sampled_from(["/a", "/a/b", "/b", "/ab", "a", "b", "%2Fa", "file://", " ", "#", "é"])


@settings(deadline=None)
@given(st.lists(NAMES).map("".join), st.lists(st.sampled_from(["/a", "/a/b", "/b"]), max_size=3))
def test_stripping_a_second_time_changes_nothing(text: str, prefixes: list[str]) -> None:
    paths = BuildPaths.of(prefixes)
    assert paths.stripped(paths.stripped(text)) == paths.stripped(text)


def test_a_longer_name_or_an_inner_folder_is_no_prefix(tmp_path: Path) -> None:
    paths = BuildPaths.of(["/build/a"])
    kept = ["/build/ab/x", "/build/a-1/x", "/build/a.d", "/x/build/a/y", "/build/a%20b/x"]
    assert [paths.stripped(text) for text in kept] == kept
    assert [paths.stripped(text) for text in ("/build/a", "-I /build/a/x", '"/build/a"')] == ["/", "-I /x", '""']
